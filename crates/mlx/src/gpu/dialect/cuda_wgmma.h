// CUDA of compute capability 9.0 alone: products of a warpgroup (four simd groups), whose right side is read from shared
// memory while the threads go on. Goes behind cuda_mma.h. The emulator has functions of the same names.
#ifndef GK_EMU
// Where tiles of 8 rows by 16 bytes, each 128 bytes that lie together, are: those of the next 16 bytes of a row are
// `across` bytes further, those of the next 8 rows `down` bytes.
GK_FN gk_ulong gk_tiles(const void* first, int across, int down) {
  const gk_uint at = (gk_uint)__cvta_generic_to_shared(first);
  return (gk_ulong)(at >> 4 & 0x3fff) | (gk_ulong)(across >> 4) << 16 | (gk_ulong)(down >> 4) << 32;
}
// Where rows of 128 bytes are, whose 16 bytes at c lie at c ^ row % 8: eight rows in 1,024 bytes, the next eight behind them. Of
// rows of more bytes, the next 128 are `across` bytes further. The memory begins at a multiple of 1,024 bytes.
GK_FN gk_ulong gk_swizzled(const void* first, int across) {
  const gk_uint at = (gk_uint)__cvta_generic_to_shared(first);
  return (gk_ulong)(at >> 4 & 0x3fff) | (gk_ulong)(across >> 4) << 16 | (gk_ulong)(1024 >> 4) << 32 | 1ull << 62;
}
// Where tiles are, so many bytes further.
GK_FN gk_ulong gk_further(gk_ulong tiles, int bytes) { return tiles + (bytes >> 4); }
// c [64, 8 MT] += a [64, 16] * b of T: b is [8 MT, 16]^T with k along rows (mma), or [16, 8 MT] with k across rows (mma_t); start
// leaves the product alone in c. With mma_shared a is in shared memory, too, in the order of gk_swizzled.
// Simd group w has rows 16 w of a and c, as gk_tensor::mma does. From gk_warpgroup_begin to
// gk_warpgroup_wait nothing else may touch what it reads and writes.
#define GK_C4(i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define GK_C16(i) GK_C4(i), GK_C4(i + 1), GK_C4(i + 2), GK_C4(i + 3)
#define GK_PRODUCT_OF(T, NAME, MT, N, C, A, TILES, ADDS, TURNED, ...) \
  template <bool adds, bool turned> GK_FN void gk_warpgroup_product(const T*, float (&c)[MT][4], const gk_uint (&a)[4], gk_ulong tiles) { \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, " ADDS ", 0;\n" \
        "wgmma.mma_async.sync.aligned.m64n" N "k16.f32." NAME "." NAME " {" C "}, {" A "}, " TILES ", p, 1, 1, " TURNED "; }\n" \
        : __VA_ARGS__ : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(tiles), "n"(adds), "n"(turned)); \
  }
#define GK_PRODUCT(...) GK_PRODUCT_OF(__nv_bfloat16, "bf16", __VA_ARGS__) GK_PRODUCT_OF(__half, "f16", __VA_ARGS__)
GK_PRODUCT(4, "32", "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15", "%16,%17,%18,%19", "%20", "%21", "%22", GK_C16(0))
GK_PRODUCT(6, "48", "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23", "%24,%25,%26,%27", "%28", "%29", "%30", GK_C16(0), GK_C4(4), GK_C4(5))
GK_PRODUCT(8, "64", "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31", "%32,%33,%34,%35", "%36", "%37", "%38", GK_C16(0), GK_C16(4))
GK_PRODUCT(10, "80", "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39", "%40,%41,%42,%43", "%44", "%45", "%46", GK_C16(0), GK_C16(4), GK_C4(8), GK_C4(9))
GK_PRODUCT(12, "96", "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47", "%48,%49,%50,%51", "%52", "%53", "%54", GK_C16(0), GK_C16(4), GK_C16(8))
GK_PRODUCT(16, "128", "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63", "%64,%65,%66,%67", "%68", "%69", "%70", GK_C16(0), GK_C16(4), GK_C16(8), GK_C16(12))
GK_PRODUCT(24, "192", "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95", "%96,%97,%98,%99", "%100", "%101", "%102", GK_C16(0), GK_C16(4), GK_C16(8), GK_C16(12), GK_C16(16), GK_C16(20))
#undef GK_PRODUCT_OF
#define GK_PRODUCT_OF(T, NAME, MT, N, C, ROWS, TILES, ...) \
  GK_FN void gk_warpgroup_product(const T*, float (&c)[MT][4], gk_ulong rows, gk_ulong tiles) { \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0;\n" \
        "wgmma.mma_async.sync.aligned.m64n" N "k16.f32." NAME "." NAME " {" C "}, " ROWS ", " TILES ", p, 1, 1, 0, 0; }\n" \
        : __VA_ARGS__ : "l"(rows), "l"(tiles)); \
  }
GK_PRODUCT(4, "32", "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15", "%16", "%17", GK_C16(0))
GK_PRODUCT(6, "48", "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23", "%24", "%25", GK_C16(0), GK_C4(4), GK_C4(5))
GK_PRODUCT(8, "64", "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31", "%32", "%33", GK_C16(0), GK_C16(4))
GK_PRODUCT(10, "80", "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39", "%40", "%41", GK_C16(0), GK_C16(4), GK_C4(8), GK_C4(9))
GK_PRODUCT(12, "96", "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47", "%48", "%49", GK_C16(0), GK_C16(4), GK_C16(8))
GK_PRODUCT(16, "128", "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63", "%64", "%65", GK_C16(0), GK_C16(4), GK_C16(8), GK_C16(12))
#undef GK_PRODUCT
#undef GK_PRODUCT_OF
#undef GK_C16
#undef GK_C4
template <typename T, int MT> struct gk_warpgroup {
  static constexpr const T* OF = nullptr;                     // chooses the instruction
  static GK_FN void start(float (&c)[MT][4], const gk_uint (&a)[4], gk_ulong tiles) { gk_warpgroup_product<false, false>(OF, c, a, tiles); }
  static GK_FN void mma(float (&c)[MT][4], const gk_uint (&a)[4], gk_ulong tiles) { gk_warpgroup_product<true, false>(OF, c, a, tiles); }
  static GK_FN void mma_shared(float (&c)[MT][4], gk_ulong rows, gk_ulong tiles) { gk_warpgroup_product(OF, c, rows, tiles); }
  static GK_FN void mma_t(float (&c)[MT][4], const gk_uint (&a)[4], gk_ulong tiles) { gk_warpgroup_product<true, true>(OF, c, a, tiles); }
};
// Behind gk_warpgroup_wait: keeps a compiler from reading c before it.
template <int MT> GK_FN void gk_settled(float (&c)[MT][4]) {
  GK_UNROLL for (int i = 0; i < MT; ++i) asm volatile("" : "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3]) :: "memory");
}
GK_FN void gk_warpgroup_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
GK_FN void gk_warpgroup_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> GK_FN void gk_warpgroup_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory"); }
// What this thread has written to shared memory is there for products that begin behind the next barrier.
GK_FN void gk_shared_written() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Copies by the memory system to shared memory, of which a thread begins one and others wait for it. An arrival counts the bytes
// of its phase, and the phases: wait for phase 0, 1, 2, .. in turn.
typedef gk_ulong gk_arrival;
// By one thread, before a barrier that all that use them pass.
GK_FN void gk_no_arrivals(gk_arrival* arrivals, int count) {
  for (int i = 0; i < count; ++i) asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"((gk_uint)__cvta_generic_to_shared(arrivals + i)) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// What the copies of a phase have together; they begin behind it. A multiple of 16 each, as addresses are.
GK_FN void gk_expect(gk_arrival* arrival, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"((gk_uint)__cvta_generic_to_shared(arrival)), "r"(bytes) : "memory");
}
GK_FN void gk_fetch(void* to, const void* from, int bytes, gk_arrival* arrival) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
      :: "r"((gk_uint)__cvta_generic_to_shared(to)), "l"(from), "r"(bytes), "r"((gk_uint)__cvta_generic_to_shared(arrival)) : "memory");
}
GK_FN void gk_fetched(gk_arrival* arrival, int phase) {
  asm volatile("{ .reg .pred p;\nAGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra DONE;\nbra AGAIN;\nDONE: }"
      :: "r"((gk_uint)__cvta_generic_to_shared(arrival)), "r"(phase & 1) : "memory");
}
// Counts in shared memory. Whether this thread is the last of so many: what the others did before they counted is done.
GK_FN bool gk_is_last(gk_uint* counter, int of) {
  gk_uint before;
  asm volatile("atom.acq_rel.cta.shared::cta.add.u32 %0, [%1], 1;" : "=r"(before) : "r"((gk_uint)__cvta_generic_to_shared(counter)) : "memory");
  return (before + 1) % of == 0;
}
// Keeps a compiler from waiting for products before a sum of weights is there: it ends a basic block.
GK_FN void gk_before_wait(float sum) {
  if (sum < 0) { asm volatile("nanosleep.u32 20;"); asm volatile("trap;"); }
}
// Registers that a warpgroup takes from others of its group, or leaves to them.
template <int N> GK_FN void gk_more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(N)); }
template <int N> GK_FN void gk_fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(N)); }
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
#endif
