// The common dialect, spelled for Metal: the header of a custom kernel. MLX puts its utils (bfloat16_t, float16_t) in
// front. It declares those built-in arguments whose names occur in the kernel's own text, not in this header, so the
// names are put there in a comment.
#define GK_METAL 1
#define GK_DEV device
#define GK_TGP threadgroup
#define GK_FN inline
#ifndef GK_SHARED
#define GK_SHARED(T, name, n) threadgroup T name[n]
#endif
#define GK_UNROLL _Pragma("clang loop unroll(full)")
#define GK_WRITABLE(T, p) ((device T*)(p))
#define GK_BARRIER() threadgroup_barrier(mem_flags::mem_threadgroup)
#define GK_GROUP_X ((int)threadgroup_position_in_grid.x)
#define GK_GROUP_Y ((int)threadgroup_position_in_grid.y)
#define GK_GROUP_Z ((int)threadgroup_position_in_grid.z)
#define GK_GROUPS_X ((int)threadgroups_per_grid.x)
#define GK_GROUPS_Y ((int)threadgroups_per_grid.y)
#define GK_GROUPS_Z ((int)threadgroups_per_grid.z)
#define GK_TID ((int)thread_position_in_threadgroup.x)
#define GK_LANE ((int)thread_index_in_simdgroup)
#define GK_SIMD ((int)simdgroup_index_in_threadgroup)
#define GK_FLOAT(bits) as_type<float>(bits)
typedef uint gk_uint;
typedef long gk_long;
typedef ulong gk_ulong;
template <typename T> GK_FN T gk_shfl(T x, int lane) { return simd_shuffle(x, (ushort)lane); }
template <typename T> GK_FN T gk_shfl_xor(T x, int mask) { return simd_shuffle_xor(x, (ushort)mask); }
GK_FN float gk_sum(float x) { return simd_sum(x); }
GK_FN float gk_f(float x) { return x; }
GK_FN float gk_f(bfloat16_t x) { return static_cast<float>(x); }
GK_FN float gk_f(float16_t x) { return static_cast<float>(x); }
template <typename T> struct gk_to { static GK_FN T of(float x) { return static_cast<T>(x); } };
GK_FN gk_uint gk_shared_add(threadgroup gk_uint* p, gk_uint n) {
  return atomic_fetch_add_explicit((threadgroup atomic_uint*)p, n, memory_order_relaxed);
}
GK_FN gk_uint gk_shared_or(threadgroup gk_uint* p, gk_uint n) {
  return atomic_fetch_or_explicit((threadgroup atomic_uint*)p, n, memory_order_relaxed);
}
GK_FN float gk_exp2(float x) { return metal::fast::exp2(x); }
GK_FN float gk_exp(float x) { return metal::fast::exp(x); }
GK_FN float gk_log(float x) { return metal::precise::log(x); }
GK_FN float gk_rint(float x) { return metal::rint(x); }
GK_FN float gk_rsqrt(float x) { return metal::precise::rsqrt(x); }
GK_FN float gk_cos(float x) { return metal::precise::cos(x); }
GK_FN float gk_sin(float x) { return metal::precise::sin(x); }
