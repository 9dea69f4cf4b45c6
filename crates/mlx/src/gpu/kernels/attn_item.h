// What one group attends for: an item of eight ints, {first row, rows, position of the first, start of the block table,
// blocks freed behind the sink blocks, kind, 0, 0}. The rows are consecutive tokens of one sequence; position -rows attends to
// nothing and gives zeros; kind 1 is for attn_copy.h. A key k is seen by the row with n keys before its end if
// k < n && (WINDOW == 0 || k + WINDOW >= n || k < SINK).
const int row0 = items[ITEM * 8], rows = items[ITEM * 8 + 1], pos0 = items[ITEM * 8 + 2];
const int tab = items[ITEM * 8 + 3], freed = items[ITEM * 8 + 4];
constexpr int SB = (SINK + BS - 1) / BS;  // blocks that are never freed
const int hi = pos0 + rows;               // one past the last key of the last row
