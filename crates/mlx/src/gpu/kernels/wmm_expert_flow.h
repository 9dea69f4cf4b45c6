// CUDA alone: the product of wmm_experts.h for weights of 4 bits in groups of 64 or 128, by persistent groups. A segment is an expert with
// up to 8 COLUMNS of its pairs, and has N / (16 RT) tiles of 16 RT rows of w. A group takes a share of all tiles, one after the other:
// it puts the rows of x of as many segments as it has room for into shared memory, in the order of instructions, and its simd
// groups take turns at their tiles. Each has its own ring of ST units of w, which runs on from tile to tile.
// in: x [rows, K] of TX, w [EXPERTS, N, ..], ss, sb as in wmm.h, order [P] and starts [EXPERTS + 1] int (expert_rows.h)
// out: y [P, N] of TO
// K = KMAX, a multiple of 256, or of 128 where GROUP is 64: the last unit is half then. N a multiple of 16 RT. The order of k is that of wmm_body.h.
// groups (any number), WN simd groups, SHARED bytes of threadgroup memory
constexpr int NUMBERS = 512 / GROUP;                          // bytes of a row's scales in a unit of 256 k
constexpr int STAGE = RT * (16 * 8 + NUMBERS * 2);            // in chunks of 16 bytes: weights, then scales and biases of each row
constexpr int PIECES = KMAX / 64, SLOT = PIECES * 64, NT = WN * 32, K = KMAX, KU = (K + 255) / 256;
constexpr bool WHOLE = K % 256 == 0;
static_assert((WN * ST * STAGE + COLUMNS * (SLOT + PIECES * 2)) * 16 <= SHARED, "shared memory");
GK_SHARED_LARGE(uint4, flow, SHARED / 16);
GK_SHARED(int, ends, EXPERTS);                                // segments of the experts up to this one
GK_SHARED(int, of_simds, 32);
GK_SHARED(int, pair_of, COLUMNS * 8);                         // of a column, below 0 for none
uint4* const held = flow + WN * ST * STAGE;                   // [slot][piece][two][lane]: x
float* const sums = (float*)(held + COLUMNS * SLOT);          // [slot][piece][column]: what biases are multiplied with
const int lane = GK_LANE, simd = GK_SIMD, g = lane >> 2, t = lane & 3;
const int N = w_shape[1], tiles = N / (16 * RT);
const gk_long RB = K / 2;                                     // bytes of a row
typedef gk_codes<TX> Codes;
GK_WAIT();                                                    // the pairs are sorted
auto pairs_of = [&](int expert) { return starts[expert + 1] - starts[expert]; };
auto segments_of = [&](int expert) { return (pairs_of(expert) + 8 * COLUMNS - 1) / (8 * COLUMNS); };
int base = 0;
for (int first = 0; first < EXPERTS; first += NT) {
  const int expert = first + GK_TID;
  int end = expert < EXPERTS ? segments_of(expert) : 0;
  GK_UNROLL for (int i = 1; i < 32; i *= 2) {
    const int others = gk_shfl(end, lane >= i ? lane - i : lane);
    end += lane >= i ? others : 0;
  }
  if (lane == 31) of_simds[simd] = end;
  GK_BARRIER();
  int before = base, all = base;
  for (int i = 0; i < WN; ++i) {
    before += i < simd ? of_simds[i] : 0;
    all += of_simds[i];
  }
  if (expert < EXPERTS) ends[expert] = before + end;
  base = all;
  GK_BARRIER();
}
const int total = base * tiles;
const int t0 = (int)((gk_long)total * GK_GROUP_X / GK_GROUPS_X), t1 = (int)((gk_long)total * (GK_GROUP_X + 1) / GK_GROUPS_X);
auto expert_of = [&](int segment) {                           // the first whose end is behind it
  int from = 0, to = EXPERTS - 1;
  while (from < to) {
    const int middle = (from + to) / 2;
    if (ends[middle] > segment) to = middle; else from = middle + 1;
  }
  return from;
};
// The pairs of a segment: the first in `order`, and how many.
struct Segment { int expert, first, pairs; };
auto read = [&](int segment) {
  const int expert = expert_of(segment), before = expert > 0 ? ends[expert - 1] : 0;
  const int first = starts[expert] + (segment - before) * 8 * COLUMNS, left = starts[expert + 1] - first;
  return Segment{expert, first, left < 8 * COLUMNS ? left : 8 * COLUMNS};
};
// The unit that is fetched next.
uint4* const own = flow + simd * ST * STAGE;
int ft = t0 + simd, fu = 0, fs = 0, f_segment = -1, f_expert = 0;
const char* from_w = nullptr;
const char* from_s = nullptr;
auto aim = [&]() {
  if (ft >= t1) return;
  const int segment = ft / tiles;
  if (segment != f_segment) {
    f_segment = segment;
    f_expert = expert_of(segment);
  }
  const gk_long row = (gk_long)f_expert * N + (ft - segment * tiles) * 16 * RT;
  from_w = (const char*)w + (row + lane / 8) * RB + lane % 8 * 16;
  from_s = (const char*)(lane % 2 ? sb : ss) + (row + lane / 2) * (K / GROUP * 2);
};
auto fetch = [&]() {
  if (ft < t1) {
    uint4* const to = own + fs * STAGE;
    GK_UNROLL for (int i = 0; i < 4 * RT; ++i) {
      const int at = lane + 32 * i, row = at / 8, chunk = at % 8;
      if (WHOLE || fu * 256 + chunk * 32 < K) gk_copy16(to + row * 8 + (chunk ^ (row & 3) * 2), from_w + i * 4 * RB, true);
    }
    constexpr int EACH = WHOLE ? NUMBERS : 4;                 // a row's scales begin at a multiple of so many bytes
    GK_UNROLL for (int r = 0; r < RT; ++r)
      GK_UNROLL for (int b = 0; b < NUMBERS; b += EACH)
        if (WHOLE || fu * NUMBERS + b < K / GROUP * 2)
          gk_copy<EACH>((char*)(to + RT * 128) + (r * 32 + lane) * NUMBERS + b, from_s + (gk_long)r * 16 * (K / GROUP * 2) + b);
    from_w += 128;
    from_s += NUMBERS;
    if (++fu == KU) {
      fu = 0;
      ft += WN;
      aim();
    }
    fs = fs + 1 == ST ? 0 : fs + 1;
  }
  gk_commit();
};
aim();
GK_UNROLL for (int i = 0; i < ST - 1; ++i) fetch();
const gk_uint one[4] = {Codes::ONES, Codes::ONES, Codes::ONES, Codes::ONES};
const gk_uint mask = gk_opaque(0x000f000fu), magic = gk_opaque(Codes::SUM_MAGIC);
// The rows of x of a segment, into the slots from `slot` on.
auto hold = [&](Segment segment, int slot) {
  const int columns = (segment.pairs + 7) / 8;
  for (int at = GK_TID; at < columns * 8; at += NT) pair_of[slot * 8 + at] = at < segment.pairs ? order[segment.first + at] : -1;
  for (int at = simd; at < columns * PIECES; at += WN) {
    const int c = at / PIECES, piece = at % PIECES, m = c * 8 + g;
    const bool some = m < segment.pairs;
    const TX* row = x + (gk_long)(some ? order[segment.first + m] / CHOSEN : 0) * K + piece * 64 + t * 16;
    gk_uint p[2][4];
    GK_UNROLL for (int j = 0; j < 2; ++j) {
      uint4 v = {0, 0, 0, 0};
      if (some) v = gk_cached4(row + j * 8);
      p[j][0] = gk_bytes(v.x, v.z, 0x5410); p[j][1] = gk_bytes(v.x, v.z, 0x7632);
      p[j][2] = gk_bytes(v.y, v.w, 0x5410); p[j][3] = gk_bytes(v.y, v.w, 0x7632);
      held[(slot + c) * SLOT + (piece * 2 + j) * 32 + lane] = {p[j][0], p[j][1], p[j][2], p[j][3]};
    }
    float e[4] = {0, 0, 0, 0};
    GK_UNROLL for (int j = 0; j < 4; ++j) gk_tensor<TX>::mma(e, one, p[j / 2][j % 2 * 2], p[j / 2][j % 2 * 2 + 1]);
    float* to = sums + ((slot + c) * PIECES + piece) * 8 + 2 * t;
    if (g == 0) { to[0] = e[0]; to[1] = e[1]; }
  }
};
int stage = 0;
// The next tile, with MT slots of x from `slot` on.
auto multiply = [&](auto columns, int slot, int row) {
  constexpr int MT = decltype(columns)::COUNT;
  float acc[RT][MT][4];
  GK_UNROLL for (int r = 0; r < RT; ++r)
    GK_UNROLL for (int c = 0; c < MT; ++c) { acc[r][c][0] = acc[r][c][1] = acc[r][c][2] = acc[r][c][3] = 0; }
  for (int u = 0; u < KU; ++u) {
    gk_wait<ST - 2>();
    GK_SIMD_BARRIER();                                        // this unit is there for all lanes, and the one before is read
    fetch();
    const uint4* unit = own + stage * STAGE;
    stage = stage + 1 == ST ? 0 : stage + 1;
    const char* numbers = (const char*)(unit + RT * 128) + g * 2 * NUMBERS;
    GK_UNROLL for (int i = 0; i < 4; ++i) {                   // 64 k
      if (!WHOLE && u * 4 + i >= PIECES) break;
      uint4 xv[MT][2];
      float e[MT][2];
      GK_UNROLL for (int c = 0; c < MT; ++c) {
        const int piece = u * 4 + i;
        GK_UNROLL for (int j = 0; j < 2; ++j) xv[c][j] = held[(slot + c) * SLOT + (piece * 2 + j) * 32 + lane];
        const float* sum = sums + ((slot + c) * PIECES + piece) * 8 + 2 * t;
        e[c][0] = sum[0];
        e[c][1] = sum[1];
      }
      GK_UNROLL for (int r = 0; r < RT; ++r) {
        auto number = [&](int half, int kind) {               // of row g or g + 8
          return Codes::low(*(const unsigned short*)(numbers + ((r * 16 + half * 8) * 2 + kind) * NUMBERS + i * 64 / GROUP * 2));
        };
        const int chunk = (2 * i + (t >> 1)) ^ (g & 3) * 2;
        const uint2* at = (const uint2*)(unit + (r * 16 + g) * 8 + chunk) + (t & 1);
        const uint2 wa = at[0], wb = at[128];
        float d[MT][4];
        GK_UNROLL for (int c = 0; c < MT; ++c) { d[c][0] = d[c][1] = d[c][2] = d[c][3] = 0; }
        GK_UNROLL for (int j = 0; j < 4; ++j) {
          const gk_uint w0 = j < 2 ? wa.x : wa.y, w1 = j < 2 ? wb.x : wb.y;
          const int h = (j & 1) * 8;
          const gk_uint a[4] = {gk_nibbles(w0 >> h, mask, magic), gk_nibbles(w1 >> h, mask, magic),
                                gk_nibbles(w0 >> (h + 4), mask, magic), gk_nibbles(w1 >> (h + 4), mask, magic)};
          GK_UNROLL for (int c = 0; c < MT; ++c)
            gk_tensor<TX>::mma(d[c], a, gk_word(xv[c][j >> 1], (j & 1) * 2), gk_word(xv[c][j >> 1], (j & 1) * 2 + 1));
        }
        GK_UNROLL for (int half = 0; half < 2; ++half) {
          const float scale = number(half, 0), bias = number(half, 1) - Codes::ABOVE * scale, s = Codes::TIMES * scale;
          GK_UNROLL for (int c = 0; c < MT; ++c)
            GK_UNROLL for (int k = 0; k < 2; ++k) {
              float& to = acc[r][c][half * 2 + k];
              to = fmaf(s, d[c][half * 2 + k], fmaf(bias, e[c][k], to));
            }
        }
      }
    }
  }
  GK_UNROLL for (int r = 0; r < RT; ++r)
    GK_UNROLL for (int c = 0; c < MT; ++c)
      GK_UNROLL for (int i = 0; i < 4; ++i) {
        const int pair = pair_of[(slot + c) * 8 + t * 2 + (i & 1)];
        if (pair >= 0) y[(gk_long)pair * N + row + r * 16 + g + (i >> 1) * 8] = gk_to<TO>::of(acc[r][c][i]);
      }
};
int mine = t0 + simd;                                         // this simd group's next tile
for (int tile = t0; tile < t1;) {
  // Segments as long as there are slots.
  int slots = 0, end = tile;
  while (end < t1) {
    const Segment segment = read(end / tiles);
    const int columns = (segment.pairs + 7) / 8;
    if (slots + columns > COLUMNS) break;
    hold(segment, slots);
    slots += columns;
    const int behind = (end / tiles + 1) * tiles;
    end = behind < t1 ? behind : t1;
  }
  GK_BARRIER();
  int slot = 0, segment = tile / tiles;
  Segment now = read(segment);
  for (; mine < end; mine += WN) {
    while (segment < mine / tiles) {
      slot += (now.pairs + 7) / 8;
      now = read(++segment);
    }
    const int row = (mine - segment * tiles) * 16 * RT, columns = (now.pairs + 7) / 8;
    if (columns == 1) multiply(gk_count<1>(), slot, row);
    else if (columns == 2 && COLUMNS >= 2) multiply(gk_count<COLUMNS < 2 ? 1 : 2>(), slot, row);
    else if (columns == 3 && COLUMNS >= 3) multiply(gk_count<COLUMNS < 3 ? 1 : 3>(), slot, row);
    else if (COLUMNS >= 4) multiply(gk_count<COLUMNS < 4 ? 1 : 4>(), slot, row);
  }
  GK_BARRIER();                                               // x is read
  tile = end;
}
gk_wait_all();
