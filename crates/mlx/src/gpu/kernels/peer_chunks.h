// Rows of all ranks as in peer_rows.h, for many of them, W * sizeof(T) a multiple of 16: a group sends a chunk of a row without flags, and one flag
// behind it. peers: behind the packets, for two exchanges in turn PIECES pieces of 16 bytes from each rank; then, in turn, FLAGS flags from each.
// groups (chunks of a row, rows), NT threads
typedef gk_bytes16 Data;
//@include peer_begin.h
constexpr gk_long PIECES_AT = 256 + 2 * RANKS * (gk_long)PACKETS * 16, FLAGS_AT = PIECES_AT + 2 * RANKS * (gk_long)PIECES * 16;
const int chunk = (pieces + GK_GROUPS_X - 1) / GK_GROUPS_X, behind = (GK_GROUP_X + 1) * chunk;
const int start = GK_GROUP_X * chunk + GK_TID, end = behind < pieces ? behind : pieces, step = NT;
const int flag = GK_GROUP_Y * GK_GROUPS_X + GK_GROUP_X;
for (int i = start; i < end; i += step) {
  const Data data = from[i];
  GK_UNROLL for (int r = 1; r < RANKS; ++r) {
    char* const to = gk_peer(addresses, after, (RANK + r) % RANKS) + PIECES_AT;
    reinterpret_cast<Data*>(to)[(half + RANK) * PIECES + first + i] = data;
  }
}
GK_BARRIER();
char* const memory = reinterpret_cast<char*>(own);
if (GK_TID < RANKS - 1) {
  const int r = (RANK + 1 + GK_TID) % RANKS;
  gk_post(gk_peer(addresses, after, r) + FLAGS_AT + ((half + RANK) * FLAGS + flag) * 4, number);
  gk_await(memory + FLAGS_AT + ((half + r) * FLAGS + flag) * 4, number);
}
GK_BARRIER();
const auto received = [&](int r, int i) { return gk_arrived(memory + PIECES_AT + ((half + r) * PIECES + first + i) * 16); };
//@include peer_end.h
