// What Metal's language has and C++14 has not, for a compiler of C++ with address spaces: names and types alone, nothing runs.
typedef unsigned char uint8_t;
typedef int int32_t;
typedef unsigned uint32_t;

// Metal's are words of the language, which no variable may have.
#define device __attribute__((address_space(1)))
#define constant __attribute__((address_space(2)))
#define threadgroup __attribute__((address_space(3)))
#define thread
#define half _Float16
#define bfloat __bf16
#define kernel static_assert(false, "a word of Metal's")
#define vertex kernel
#define fragment kernel

typedef unsigned uint;
typedef unsigned short ushort;
typedef unsigned long ulong;
// As MLX names them.
typedef bfloat bfloat16_t;
typedef half float16_t;

struct uint3 { uint x, y, z; };
extern const uint3 threadgroup_position_in_grid, threadgroups_per_grid, thread_position_in_threadgroup;
extern const uint thread_index_in_simdgroup, simdgroup_index_in_threadgroup;

// A variable of a function may have no address space, but for static ones.
#define GK_SHARED(T, name, n) static threadgroup T name[n]

enum class mem_flags { mem_none, mem_device, mem_threadgroup };
void threadgroup_barrier(mem_flags);
// No simd function takes 64 bits.
#define FOR_SIMD(T) \
  T simd_shuffle(T, ushort); \
  T simd_shuffle_xor(T, ushort); \
  T simd_sum(T);
FOR_SIMD(float) FOR_SIMD(half) FOR_SIMD(int) FOR_SIMD(uint) FOR_SIMD(short) FOR_SIMD(ushort)
template <typename T> T simd_shuffle(T, ushort) = delete;
template <typename T> T simd_shuffle_xor(T, ushort) = delete;

template <typename T, typename F> T as_type(F from) {
  static_assert(sizeof(T) == sizeof(F), "types of one size");
  return T();
}

struct atomic_uint;
enum memory_order { memory_order_relaxed };
uint atomic_fetch_add_explicit(threadgroup atomic_uint*, uint, memory_order);
uint atomic_fetch_or_explicit(threadgroup atomic_uint*, uint, memory_order);

template <typename T, int ROWS, int COLUMNS> struct simdgroup_matrix {
  static_assert(ROWS == 8 && COLUMNS == 8, "the only size");
  T (&thread_elements())[2];
};
template <typename T> void simdgroup_multiply_accumulate(simdgroup_matrix<T, 8, 8>& d, simdgroup_matrix<T, 8, 8> a, simdgroup_matrix<T, 8, 8> b, simdgroup_matrix<T, 8, 8> c);

namespace metal {
float rint(float);
namespace fast {
float exp(float);
float exp2(float);
}
namespace precise {
float cos(float);
float log(float);
float rsqrt(float);
float sin(float);
}
}
