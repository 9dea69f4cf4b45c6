// The common dialect, spelled for CUDA (NVRTC): the header of a custom kernel. MLX puts its utils.cuh (cuda_bf16.h,
// cuda_fp16.h) in front and the kernel into namespace mlx::core::cu.
#define GK_CUDA 1
#define GK_DEV                      // address space of arrays
#define GK_TGP                      // address space of threadgroup memory
#define GK_FN __device__ __forceinline__
#ifndef GK_SHARED
#define GK_SHARED(T, name, n) __shared__ __align__(16) T name[n]
#endif
#define GK_UNROLL _Pragma("unroll")
#define GK_WRITABLE(T, p) const_cast<T*>(p)
#define GK_BARRIER() __syncthreads()
// Until here a kernel of a graph may run while the one before it ends: it must not have read what others write.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define GK_WAIT() asm volatile("griddepcontrol.wait;" ::: "memory")
#else
#define GK_WAIT()
#endif
#define GK_GROUP_X ((int)blockIdx.x)
#define GK_GROUP_Y ((int)blockIdx.y)
#define GK_GROUP_Z ((int)blockIdx.z)
#define GK_GROUPS_X ((int)gridDim.x)
#define GK_GROUPS_Y ((int)gridDim.y)
#define GK_GROUPS_Z ((int)gridDim.z)
#define GK_TID ((int)threadIdx.x)   // threadgroups are one-dimensional
#define GK_LANE ((int)(threadIdx.x & 31))
#define GK_SIMD ((int)(threadIdx.x >> 5))
#define GK_FLOAT(bits) __int_as_float(bits)
typedef unsigned int gk_uint;
typedef long long gk_long;
typedef unsigned long long gk_ulong;
template <typename T> GK_FN T gk_shfl(T x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
template <typename T> GK_FN T gk_shfl_xor(T x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
GK_FN float gk_sum(float x) {
  for (int i = 16; i > 0; i >>= 1) x += __shfl_xor_sync(0xffffffffu, x, i);
  return x;
}
GK_FN float gk_f(float x) { return x; }
GK_FN float gk_f(__nv_bfloat16 x) { return __bfloat162float(x); }
GK_FN float gk_f(__half x) { return __half2float(x); }
template <typename T> struct gk_to;
template <> struct gk_to<float> { static GK_FN float of(float x) { return x; } };
template <> struct gk_to<__nv_bfloat16> { static GK_FN __nv_bfloat16 of(float x) { return __float2bfloat16_rn(x); } };
template <> struct gk_to<__half> { static GK_FN __half of(float x) { return __float2half_rn(x); } };
template <> struct gk_to<gk_uint> { static GK_FN gk_uint of(float x) { return (gk_uint)x; } };
GK_FN gk_uint gk_shared_add(gk_uint* p, gk_uint n) { return atomicAdd(p, n); }
GK_FN gk_uint gk_shared_or(gk_uint* p, gk_uint n) { return atomicOr(p, n); }
#ifdef GK_EMU
GK_FN float gk_exp2(float x) { return exp2f(x); }
#else
// One instruction; what is below 2^-126 becomes zero.
GK_FN float gk_exp2(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
#endif
GK_FN float gk_exp(float x) { return __expf(x); }
GK_FN float gk_log(float x) { return logf(x); }
GK_FN float gk_rint(float x) { return rintf(x); }
GK_FN float gk_rsqrt(float x) { return rsqrtf(x); }
GK_FN float gk_cos(float x) { return cosf(x); }
GK_FN float gk_sin(float x) { return sinf(x); }
// What a set's last group needs; CUDA alone, since Metal orders nothing between groups.
#define GK_FUSED 1
#define GK_FENCE() __threadfence()
GK_FN gk_uint gk_atomic_inc(gk_uint* p, gk_uint top) { return atomicInc(p, top); }
