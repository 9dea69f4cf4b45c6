// What includes it has starts and w as wmm_grouped.h, MT, TILE and tiles. An expert's pairs are divided evenly into parts of up to 8 MT.
// Calls multiply(expert, first output, first pair, pair behind the last) for each turn of this group. Parts of one tile are neighbours:
// they read the same weights.
auto each_turn = [&](auto&& multiply) {
  auto parts_of = [](int pairs) { return (pairs + 8 * MT - 1) / (8 * MT); };
  int expert = 0, begin = starts[0], end = starts[1], parts = parts_of(end - begin), before = 0;
  for (int turn = GK_GROUP_X;; turn += GK_GROUPS_X) {
    while (turn - before >= parts * tiles) {
      before += parts * tiles;
      if (++expert == w_shape[0]) return;
      begin = end;
      end = starts[expert + 1];
      parts = parts_of(end - begin);
    }
    const int at = turn - before, pairs = (end - begin + parts - 1) / parts, pair = begin + at % parts * pairs;
    multiply(expert, at / parts * TILE, pair, pair + pairs < end ? pair + pairs : end);
  }
};
