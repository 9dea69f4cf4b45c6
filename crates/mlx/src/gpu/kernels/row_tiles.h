// CUDA alone: rows of T as wmm_tiled.h has them copied: y [4 KU, M, 64], the rows of each 64 k one behind the other, in the order in which lanes take
// k, and as gk_swizzled has them: chunk c (16 bytes) of a row lies at c ^ row % 8. Of 128 k, product s has 16: lane t the elements 2 t, 2 t + 1, 2 t + 8 and
// 2 t + 9 of them. A lane's codes are 16 bytes that lie together: these elements are, with weights of
//   4 bits: k = 32 t + 8 (s / 2) + 2 (s % 2) + {0, 4, 1, 5}
//   8 bits: k = 64 (s / 4) + 16 t + 4 (s % 4) + {0, 1, 2, 3}
// x [M, K], K a multiple of 32. Behind K there are zeros. groups (y's chunks / NT rounded up), NT threads
const int M = x_shape[0], K = x_shape[1], blocks = (K + 255) / 256 * 4;
const gk_long at = (gk_long)GK_GROUP_X * NT + GK_TID;         // of a chunk
const int c = at / 8 % M % 8 ^ at % 8, row = at / 8 % M, block = at / 8 / M, s = block % 2 * 4 + c / 2;
GK_WAIT();
if (block < blocks) {
  constexpr int LANE = 128 / BITS, NEXT = BITS == 4 ? 4 : 1;    // k to those of the next lane, and to the second of two
  const int k = block / 2 * 128 + (BITS == 4 ? s / 2 * 8 + s % 2 * 2 + c % 2 : s / 4 * 64 + s % 4 * 4 + c % 2 * 2);
  const unsigned short* const from = reinterpret_cast<const unsigned short*>(x) + (gk_long)row * K + k;
  gk_uint two[4];
  GK_UNROLL for (int t = 0; t < 4; ++t) two[t] = k + LANE * t < K ? from[LANE * t] | (gk_uint)from[LANE * t + NEXT] << 16 : 0;
  reinterpret_cast<uint4*>(y)[at] = {two[0], two[1], two[2], two[3]};
}
