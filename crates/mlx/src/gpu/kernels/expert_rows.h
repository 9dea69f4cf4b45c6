// CUDA alone: pairs of a row and an expert in the order of their experts.
// in:  experts [P] uint, below E
// out: order [P] int: pairs, those of expert 0 first, each expert's in ascending order; starts [E + 1] int: where an
//      expert's begin in it
// one group of NS simd groups; E up to 32 NS, P up to PMAX, a multiple of 32
// A simd group counts its experts among 32 pairs; from these counts follows where each pair goes (a stable counting sort).
constexpr int PARTS = PMAX / 32;
GK_SHARED(unsigned short, before, PARTS * E);   // an expert's pairs in a part, then those in the parts before it
GK_SHARED(int, counts, NS * 32);
const int P = experts_shape[0], lane = GK_LANE;
for (int i = GK_TID; i < PARTS * E; i += NS * 32) before[i] = 0;
GK_BARRIER();
int rank[(PARTS + NS - 1) / NS];                // of this lane's pairs among their expert's in the part
GK_UNROLL for (int j = 0; j < (PARTS + NS - 1) / NS; ++j) {
  const int part = GK_SIMD + j * NS, pair = part * 32 + lane;
  const int own = part < PARTS && pair < P ? (int)experts[pair] : -1 - lane;
  int earlier = 0, all = 0;
  GK_UNROLL for (int i = 0; i < 32; ++i) {
    const bool same = gk_shfl(own, i) == own;
    all += same;
    earlier += same && i < lane;
  }
  rank[j] = earlier;
  if (own >= 0 && earlier == 0) before[part * E + own] = all;
}
GK_BARRIER();
int sum = 0;
if (GK_TID < E) {
  for (int part = 0; part * 32 < P; ++part) {
    const int count = before[part * E + GK_TID];
    before[part * E + GK_TID] = sum;
    sum += count;
  }
}
int end = sum;                                  // pairs of this expert and of those before it, in this simd group
GK_UNROLL for (int i = 1; i < 32; i *= 2) {
  const int others = gk_shfl(end, lane >= i ? lane - i : lane);
  end += lane >= i ? others : 0;
}
if (lane == 31) counts[GK_SIMD] = end;
GK_BARRIER();
int start = end - sum;
for (int i = 0; i < GK_SIMD; ++i) start += counts[i];
GK_BARRIER();
counts[GK_TID] = start;
if (GK_TID < E) starts[GK_TID] = start;
if (GK_TID == 0) starts[E] = P;
GK_BARRIER();
GK_UNROLL for (int j = 0; j < (PARTS + NS - 1) / NS; ++j) {
  const int part = GK_SIMD + j * NS, pair = part * 32 + lane;
  if (part < PARTS && pair < P) {
    const int own = experts[pair];
    order[counts[own] + before[part * E + own] + rank[j]] = pair;
  }
}
