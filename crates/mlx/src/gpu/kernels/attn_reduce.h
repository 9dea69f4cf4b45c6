// Second half of split attention where no group can tell that it is the last one.
// in: part [items, HK, SPLITS, R, D + 4] float, items as attn_item.h, sinks as attn_rows.h; out: out [rows, HQ, D] of T, all rows of all items
// groups (items, HK), NT threads
constexpr int G = HQ / HK, R = QN * G, RS = D + 4, NS = NT / 32;
const int ITEM = GK_GROUP_X, hk = GK_GROUP_Y, row0 = items[ITEM * 8], rows = items[ITEM * 8 + 1];
const int splits = part_shape[2];
//@include attn_parts.h
