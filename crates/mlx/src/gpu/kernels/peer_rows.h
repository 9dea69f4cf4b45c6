// Rows of all ranks: SUM: y [rows, W] of T, added in rank order in float and rounded once; else y [RANKS, rows, W] of T.
// x [rows, W] of T, this rank's; W * sizeof(T) a multiple of 8. peers [RANKS] addresses of memory that ranks share: the number of
// exchanges so far and groups that have ended, then for two exchanges in turn PACKETS packets from each rank. after: what runs before
// this, not read. All ranks make the same exchanges in the same order. groups (any, rows), NT threads
typedef gk_ulong Data;
//@include peer_begin.h
const int start = GK_GROUP_X * NT + GK_TID, end = pieces, step = GK_GROUPS_X * NT;
for (int i = start; i < end; i += step) {
  const Data data = from[i];
  GK_UNROLL for (int r = 1; r < RANKS; ++r) {
    char* const to = gk_peer(addresses, after, (RANK + r) % RANKS) + 256;
    gk_push(to + ((half + RANK) * PACKETS + first + i) * 16, data, number);
  }
}
const char* const packets = reinterpret_cast<const char*>(own) + 256;
const auto received = [&](int r, int i) { return gk_pull(packets + ((half + r) * PACKETS + first + i) * 16, number); };
//@include peer_end.h
