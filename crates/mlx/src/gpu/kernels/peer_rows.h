// Rows of all ranks: SUM: y [rows, W] of T, added in rank order in float and rounded once; else y [RANKS, rows, W] of T.
// x [rows, W] of T, this rank's; W * sizeof(T) a multiple of 8. peers [RANKS] addresses of memory that ranks share: the number of
// exchanges so far and groups that have ended, then for two exchanges in turn CAPACITY packets from each rank. after: what runs before
// this, not read. All ranks make the same exchanges in the same order. groups (any, rows), NT threads
GK_WAIT();
typedef gk_vec<T, 8 / sizeof(T)> Piece;
const int pieces = W * (int)sizeof(T) / 8;
const gk_ulong* const addresses = reinterpret_cast<const gk_ulong*>(peers);
GK_DEV gk_uint* const own = reinterpret_cast<GK_DEV gk_uint*>(gk_peer(addresses, after, RANK));
gk_uint number = gk_fresh(own) + 1;
// Flags of memory that was never written are zero, and the next exchange is in the other half.
if (number == 0) number = 2;
const gk_long half = (gk_long)(number & 1) * RANKS, first = (gk_long)GK_GROUP_Y * pieces;
const gk_ulong* const from = reinterpret_cast<const gk_ulong*>(x) + first;
for (int i = GK_GROUP_X * NT + GK_TID; i < pieces; i += GK_GROUPS_X * NT) {
  const gk_ulong data = from[i];
  GK_UNROLL for (int r = 1; r < RANKS; ++r) {
    char* const to = gk_peer(addresses, after, (RANK + r) % RANKS) + 256;
    gk_push(to + ((half + RANK) * CAPACITY + first + i) * 16, data, number);
  }
}
const char* const packets = reinterpret_cast<const char*>(own) + 256;
for (int i = GK_GROUP_X * NT + GK_TID; i < pieces; i += GK_GROUPS_X * NT) {
  gk_fv<8 / sizeof(T)> sum;
  GK_UNROLL for (int r = 0; r < RANKS; ++r) {
    const gk_ulong data = r == RANK ? from[i] : gk_pull(packets + ((half + r) * CAPACITY + first + i) * 16, number);
    if (SUM) {
      const gk_fv<8 / sizeof(T)> part = gk_load<8 / sizeof(T)>(reinterpret_cast<const T*>(&data));
      GK_UNROLL for (int k = 0; k < (int)(8 / sizeof(T)); ++k) sum.v[k] = r == 0 ? part.v[k] : sum.v[k] + part.v[k];
    } else {
      reinterpret_cast<gk_ulong*>(y)[((gk_long)r * GK_GROUPS_Y + GK_GROUP_Y) * pieces + i] = data;
    }
  }
  if (SUM) {
    Piece rounded;
    GK_UNROLL for (int k = 0; k < (int)(8 / sizeof(T)); ++k) rounded.v[k] = gk_to<T>::of(sum.v[k]);
    reinterpret_cast<Piece*>(y)[first + i] = rounded;
  }
}
// The last group to end counts the exchange: all have read the number by then.
GK_BARRIER();
if (GK_TID == 0) {
  GK_FENCE();
  const gk_uint groups = GK_GROUPS_X * GK_GROUPS_Y;
  if (gk_atomic_inc(own + 1, groups - 1) == groups - 1) *own = number;
}
