// CUDA alone: rows of T in the order in which lanes of wmm_codes.h take k: its products read both sides in this order, so that a lane's weights lie
// together. Of 64 k, product s has 16: lane t the elements 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 of them, which are, with weights of
//   4 bits: k = 16 t + 8 (s / 2) + 2 (s % 2) + {0, 4, 1, 5}
//   8 bits: k = 16 t + 4 s + {0, 1, 2, 3}
// x [rows, K] and y, K a multiple of 64. groups (rows K / 8 / NT rounded up), NT threads
const gk_long at = (gk_long)GK_GROUP_X * NT + GK_TID;         // of 8 elements of y
const int s = at % 8 / 2, high = at % 2;
GK_WAIT();
if (at < (gk_long)x_shape[0] * x_shape[1] / 8) {
  const unsigned short* const from = reinterpret_cast<const unsigned short*>(x) + at / 8 * 64 + (BITS == 4 ? s / 2 * 8 + s % 2 * 2 + high : s * 4 + high * 2);
  gk_uint two[4];
  GK_UNROLL for (int t = 0; t < 4; ++t) two[t] = from[16 * t] | (gk_uint)from[16 * t + (BITS == 4 ? 4 : 1)] << 16;
  reinterpret_cast<uint4*>(y)[at] = {two[0], two[1], two[2], two[3]};
}
