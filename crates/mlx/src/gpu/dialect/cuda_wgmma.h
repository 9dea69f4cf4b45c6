// CUDA of compute capability 9.0 alone: products of a warpgroup (four simd groups), whose right side is read from shared
// memory while the threads go on. Goes behind cuda_mma.h. The emulator has functions of the same names.
#ifndef GK_EMU
// Where tiles of 8 rows by 16 bytes, each 128 bytes that lie together, are: those of the next 16 bytes of a row are
// `across` bytes further, those of the next 8 rows `down` bytes.
GK_FN gk_ulong gk_tiles(const void* first, int across, int down) {
  const gk_uint at = (gk_uint)__cvta_generic_to_shared(first);
  return (gk_ulong)(at >> 4 & 0x3fff) | (gk_ulong)(across >> 4) << 16 | (gk_ulong)(down >> 4) << 32;
}
// c [64, 8 MT] += a [64, 16] * tiles [8 MT, 16]^T of bf16. Simd group w has rows 16 w of a and c, as gk_tensor::mma does.
// From gk_warpgroup_begin to gk_warpgroup_wait nothing else may touch what it reads and writes.
template <int MT> struct gk_warpgroup;
#define GK_C4(i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
template <> struct gk_warpgroup<4> {
  static GK_FN void mma(float (&c)[4][4], const gk_uint (&a)[4], gk_ulong tiles) {
    asm volatile("{ .reg .pred p; setp.eq.u32 p, 0, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19}, %20, p, 1, 1, 0; }\n"
        : GK_C4(0), GK_C4(1), GK_C4(2), GK_C4(3) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(tiles));
  }
};
template <> struct gk_warpgroup<8> {
  static GK_FN void mma(float (&c)[8][4], const gk_uint (&a)[4], gk_ulong tiles) {
    asm volatile("{ .reg .pred p; setp.eq.u32 p, 0, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
        "{%32,%33,%34,%35}, %36, p, 1, 1, 0; }\n"
        : GK_C4(0), GK_C4(1), GK_C4(2), GK_C4(3), GK_C4(4), GK_C4(5), GK_C4(6), GK_C4(7)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(tiles));
  }
};
#undef GK_C4
GK_FN void gk_warpgroup_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
GK_FN void gk_warpgroup_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> GK_FN void gk_warpgroup_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory"); }
// What this thread has written to shared memory is there for products that begin behind the next barrier.
GK_FN void gk_shared_written() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Weights, which a compiler would load later than here.
GK_FN uint4 gk_early4(const void* p) {
  uint4 r;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(p));
  return r;
}
GK_FN uint2 gk_early2(const void* p) {
  uint2 r;
  asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];" : "=r"(r.x), "=r"(r.y) : "l"(p));
  return r;
}
// bf16 pairs: times scale plus bias, rounded once
GK_FN gk_uint gk_scaled2(gk_uint q, gk_uint s, gk_uint b) {
  gk_uint r;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(q), "r"(s), "r"(b));
  return r;
}
#endif
