// CUDA alone: packed weights as numbers. w [words] uint with codes of BITS bits, ss and sb one T for GROUP weights; FLOAT4: codes are
// E2M1, and ss a power of two in a byte, as wmm_body.h. y T, a weight each. A thread has PER words, NT apart, so that all that a simd group reads and writes at once lies together.
// groups (words / (NT PER) rounded up), NT threads
typedef gk_codes<T> Codes;
typedef gk_pairs<T> Pairs;
constexpr int CODES = 32 / BITS;                              // of a word
const int words = w_shape[0], first = GK_GROUP_X * NT * PER + GK_TID;
const gk_uint mask = gk_opaque(0x000f000fu), magic = gk_opaque(Codes::PAIR_MAGIC);
gk_uint code[PER], scale[PER], bias[PER];
GK_UNROLL for (int j = 0; j < PER; ++j) {
  const int at = first + j * NT < words ? first + j * NT : 0;
  const gk_long group = (gk_long)at * CODES / GROUP;
  code[j] = gk_cached1(w + at);
  scale[j] = FLOAT4 ? reinterpret_cast<const unsigned char*>(ss)[group] : reinterpret_cast<const unsigned short*>(ss)[group];
  bias[j] = FLOAT4 ? 0 : reinterpret_cast<const unsigned short*>(sb)[group];
}
GK_WAIT();                                                    // y is not read any more
GK_UNROLL for (int j = 0; j < PER; ++j) {
  const int at = first + j * NT;
  if (at >= words) break;
  const float power = gk_bits(scale[j] == 0 ? 0x00400000u : scale[j] << 23);
  const gk_uint s = FLOAT4 ? Codes::twice(power) : gk_bytes(scale[j], scale[j], 0x1010), b = gk_bytes(bias[j], bias[j], 0x1010);
  if (BITS == 4) {
    gk_uint p[4];                                             // elements i and i + 4
    GK_UNROLL for (int i = 0; i < 4; ++i) p[i] = FLOAT4 ? Pairs::times(Codes::floats(code[j] >> 4 * i), s) : gk_affine2<T>(gk_nibbles(code[j] >> 4 * i, mask, magic), s, b);
    const uint4 eight = {gk_bytes(p[0], p[1], 0x5410), gk_bytes(p[2], p[3], 0x5410), gk_bytes(p[0], p[1], 0x7632), gk_bytes(p[2], p[3], 0x7632)};
    *reinterpret_cast<uint4*>(y + (gk_long)at * 8) = eight;
  } else {
    const uint2 four = {Pairs::fma(Codes::eight_itself(code[j], 0), s, b), Pairs::fma(Codes::eight_itself(code[j], 2), s, b)};
    *reinterpret_cast<uint2*>(y + (gk_long)at * 4) = four;
  }
}
