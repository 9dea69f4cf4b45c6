// The products of a warpgroup's 64 rows of w with 8 COLUMNS rows of x, over all `units` of stages from `step` on: acc. For kernels whose
// stages have TILE rows of w, then rows of x, with the barriers full and free.
float acc[COLUMNS][4];
GK_UNROLL for (int c = 0; c < COLUMNS; ++c) { acc[c][0] = acc[c][1] = acc[c][2] = acc[c][3] = 0; }
for (int unit = 0; unit < units; ++unit, ++step) {
  gk_join<ALL>(full(step));
  const uint4* const at = stage + step % ST * STAGE;
  const gk_ulong rows = gk_swizzled(at + simd / 4 * 64 * 8, 128), columns = gk_swizzled(at + TILE * 8, 128);
  gk_warpgroup_begin();
  GK_UNROLL for (int i = 0; i < 4; ++i) gk_warpgroup<TX, COLUMNS>::mma_shared(acc, gk_further(rows, i * 32), gk_further(columns, i * 32));
  gk_warpgroup_commit();
  gk_warpgroup_wait<1>();                                 // the products of the stage before are done
  if (unit > 0) gk_arrive<ALL>(free(step - 1));
}
gk_warpgroup_wait<0>();
gk_settled(acc);
if (units > 0) gk_arrive<ALL>(free(step - 1));
