// CUDA alone: pairs of a row and an expert in the order of their experts.
// in:  experts [P] uint, below E
// out: order [P] int: pairs, those of expert 0 first, each expert's in ascending order; starts [E + 1] int: where an
//      expert's begin in it
// one group of NS simd groups; E up to 32 NS, PMAX a multiple of 32
// Of PMAX pairs at a time, a simd group counts the experts among 32; from these counts follows where each pair goes (a stable counting
// sort). Of more pairs, all are counted first.
constexpr int PARTS = PMAX / 32, OWN = (PARTS + NS - 1) / NS;
GK_SHARED(unsigned short, before, PARTS * E);   // an expert's pairs in a part, then those in the parts before it
GK_SHARED(gk_uint, counts, NS * 32);
GK_SHARED(int, of_simds, NS);
const int P = experts_shape[0], lane = GK_LANE;
auto behind_others = [&](int own) {             // the sum of what threads before this one have
  int end = own;
  GK_UNROLL for (int i = 1; i < 32; i *= 2) {
    const int others = gk_shfl(end, lane >= i ? lane - i : lane);
    end += lane >= i ? others : 0;
  }
  if (lane == 31) of_simds[GK_SIMD] = end;
  GK_BARRIER();
  for (int i = 0; i < GK_SIMD; ++i) end += of_simds[i];
  return end - own;
};
int start = 0;                                  // where the next pair of this thread's expert goes
if (P > PMAX) {
  counts[GK_TID] = 0;
  GK_BARRIER();
  for (int pair = GK_TID; pair < P; pair += NS * 32) gk_shared_add(counts + experts[pair], 1u);
  GK_BARRIER();
  start = behind_others((int)counts[GK_TID]);
}
for (int first = 0; first < P; first += PMAX) {
  for (int i = GK_TID; i < PARTS * E; i += NS * 32) before[i] = 0;
  GK_BARRIER();
  int rank[OWN];                                // of this lane's pairs among their expert's in the part
  GK_UNROLL for (int j = 0; j < OWN; ++j) {
    const int part = GK_SIMD + j * NS, pair = first + part * 32 + lane;
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
    for (int part = 0; part < PARTS && first + part * 32 < P; ++part) {
      const int count = before[part * E + GK_TID];
      before[part * E + GK_TID] = sum;
      sum += count;
    }
  }
  if (P <= PMAX) start = behind_others(sum);
  counts[GK_TID] = start;
  if (first == 0 && GK_TID < E) starts[GK_TID] = start;
  start += sum;
  GK_BARRIER();
  GK_UNROLL for (int j = 0; j < OWN; ++j) {
    const int part = GK_SIMD + j * NS, pair = first + part * 32 + lane;
    if (part < PARTS && pair < P) {
      const int own = experts[pair];
      order[(int)counts[own] + before[part * E + own] + rank[j]] = pair;
    }
  }
  GK_BARRIER();
}
if (GK_TID == 0) starts[E] = P;
