// Array handles: lists of them, looking at them, making them from numbers.
#pragma once
#include "shim.h"

namespace mlx_shim {

ArraysPtr arrays_new();
void arrays_push(Arrays& v, const Array& a);
ArrayPtr arrays_get(const Arrays& v, size_t i);

ArrayPtr array_clone(const Array& a);
Ints array_shape(const Array& a);
DtypeVal array_dtype(const Array& a);
size_t array_size(const Array& a);
size_t array_nbytes(const Array& a);
bool array_available(const Array& a);
// Address of the first element; 0 until the array is evaluated.
size_t array_data_ptr(const Array& a);
// Evaluates and copies the values in row-major order.
void array_read(const Array& a, rust::Slice<uint8_t> out);
rust::String array_repr(const Array& a);
// Name of the primitive that will compute the array; empty once it is evaluated.
rust::String array_origin(const Array& a);
size_t array_id(const Array& a);
// The ids of arrays that it stacks along a new first axis; empty if it is something else.
rust::Vec<size_t> array_stacked_ids(const Array& a);

ArrayPtr from_bytes(rust::Slice<const uint8_t> data, Ints shape, DtypeVal dtype);
// Evaluated, and its memory as the allocator gives it.
ArrayPtr uninitialized(Ints shape, DtypeVal dtype);
ArrayPtr full(Ints shape, double v, DtypeVal dtype);
ArrayPtr arange(double start, double stop, DtypeVal dtype);

} // namespace mlx_shim
