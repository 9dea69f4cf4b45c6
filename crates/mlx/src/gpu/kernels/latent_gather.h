// The latents of one sequence and the keys beside them, in the order of their positions.
// in:  lpool [blocks, BS, 1, L], kpool [blocks, BS, 1, RD] of TP; table [1, blocks] int: the sequence's blocks; turned: unread, of the
//      kernel that wrote the pools, which is the dependency
// out: latents [BS blocks, L], key [BS blocks, RD] of T
// One simd group per position, NS in a group. groups (BS blocks / NS rounded up); L and RD multiples of 8
const int k = GK_GROUP_X * NS + GK_SIMD;
if (k < table_shape[1] * BS) {
  const gk_long at = (gk_long)table[k / BS] * BS + k % BS;
  for (int e = GK_LANE * 8; e < L; e += 256) gk_store8<T>::at(latents + (gk_long)k * L + e, gk_load<8>(lpool + at * L + e));
  const int e = GK_LANE * 8;
  if (e < RD) gk_store8<T>::at(key + (gk_long)k * RD + e, gk_load<8>(kpool + at * RD + e));
}
