// Tiles of KT keys that an item's rows see: those of the first SINK keys, if the window has left them, then the window's, from
// the first key of a block on.
int lo = WINDOW > 0 && pos0 + 1 > WINDOW ? (pos0 + 1 - WINDOW) / BS * BS : 0, sink_tiles = 0;
if (SINK > 0 && lo > SINK) sink_tiles = (SINK + KT - 1) / KT;
else if (SINK > 0) lo = 0;
const int tiles = sink_tiles + (hi - lo + KT - 1) / KT;
auto first_key = [&](int tile) { return tile < sink_tiles ? tile * KT : lo + (tile - sink_tiles) * KT; };
