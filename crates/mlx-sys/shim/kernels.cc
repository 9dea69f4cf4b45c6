#include "kernels.h"

#include "mlx-sys/src/kernels.rs.h"

#include "mlx/backend/cpu/encoder.h"
#include "mlx/primitives.h"

namespace mlx_shim {

namespace {

class RustKernel : public mx::Primitive {
 public:
  RustKernel(mx::Stream s, rust::Box<Kernel> kernel, std::vector<int32_t> shares)
      : mx::Primitive(s),
        kernel_(std::make_shared<rust::Box<Kernel>>(std::move(kernel))),
        name_(std::string(kernel_name(**kernel_))),
        shares_(std::move(shares)) {}

  void eval_cpu(const Arrays& inputs, Arrays& outputs) override {
    auto& encoder = mx::cpu::get_command_encoder(stream());
    std::vector<size_t> in, out;
    in.reserve(inputs.size());
    out.reserve(outputs.size());
    for (auto& a : inputs) in.push_back(dense(a, encoder));
    for (size_t i = 0; i < outputs.size(); i++) {
      if (shares_[i] >= 0) {
        // In place even while steps in flight read the old value: one stream runs in order.
        auto& input = inputs[shares_[i]];
        if (input.flags().row_contiguous) {
          outputs[i].copy_shared_buffer(input);
        } else {
          // A broadcast or a view, which can only be the first value: a copy starts the chain.
          outputs[i].set_data(mx::allocator::malloc(outputs[i].nbytes()));
          copy(input, reinterpret_cast<size_t>(outputs[i].data<char>()), encoder);
        }
      } else {
        outputs[i].set_data(mx::allocator::malloc(outputs[i].nbytes()));
      }
      out.push_back(reinterpret_cast<size_t>(outputs[i].data<char>()));
    }
    encoder.dispatch([kernel = kernel_, in = std::move(in), out = std::move(out)] {
      kernel_run(**kernel, {in.data(), in.size()}, {out.data(), out.size()});
    });
  }
  void eval_gpu(const Arrays&, Arrays&) override {
    throw std::runtime_error("[" + name_ + "] runs on the CPU only");
  }
  const char* name() const override { return name_.c_str(); }
  bool is_equivalent(const mx::Primitive& other) const override {
    auto o = dynamic_cast<const RustKernel*>(&other);
    // What writes in place is never the same twice.
    for (auto share : shares_)
      if (share >= 0) return false;
    return o && kernel_same(**kernel_, **o->kernel_);
  }

 private:
  // Address of the elements in row order; strided inputs are copied first.
  static size_t dense(const Array& a, mx::cpu::CommandEncoder& encoder) {
    if (a.flags().row_contiguous || a.size() == 0) return reinterpret_cast<size_t>(a.data<char>());
    Array room(a.shape(), a.dtype(), nullptr, {});
    room.set_data(mx::allocator::malloc(room.nbytes()));
    encoder.add_temporary(room);
    auto to = reinterpret_cast<size_t>(room.data<char>());
    copy(a, to, encoder);
    return to;
  }

  static void copy(const Array& a, size_t to, mx::cpu::CommandEncoder& encoder) {
    auto from = reinterpret_cast<size_t>(a.data<char>());
    std::vector<int32_t> shape(a.shape().begin(), a.shape().end());
    std::vector<int64_t> strides(a.strides().begin(), a.strides().end());
    encoder.dispatch([=, shape = std::move(shape), strides = std::move(strides), bytes = a.itemsize()] {
      copy_dense(from, to, {shape.data(), shape.size()}, {strides.data(), strides.size()}, bytes);
    });
  }

  std::shared_ptr<rust::Box<Kernel>> kernel_; // std::function must be copyable, Box is not
  std::string name_;
  std::vector<int32_t> shares_;
};

} // namespace

ArraysPtr kernel_arrays(rust::Box<Kernel> kernel, const Arrays& inputs, Ints shapes, Ints ranks,
    rust::Slice<const uint8_t> dtypes, Ints shares) {
  auto stream = mx::default_stream(mx::Device::cpu);
  std::vector<mx::Shape> out_shapes;
  std::vector<mx::Dtype> out_dtypes;
  auto axis = shapes.begin();
  for (size_t i = 0; i < dtypes.size(); i++) {
    out_shapes.emplace_back(axis, axis + ranks[i]);
    axis += ranks[i];
    out_dtypes.push_back(dtype_of(static_cast<DtypeVal>(dtypes[i])));
  }
  auto primitive = std::make_shared<RustKernel>(
      stream, std::move(kernel), std::vector<int32_t>(shares.begin(), shares.end()));
  return std::make_unique<Arrays>(
      Array::make_arrays(std::move(out_shapes), out_dtypes, std::move(primitive), inputs));
}

} // namespace mlx_shim
