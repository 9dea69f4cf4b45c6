// y[r] = row tokens[r] of a table, as T. BITS 0: table [.., H] of floats (ss, sb unread); else codes of 4 or 8 bits in words,
// MLX's affine packing, with scales ss and biases sb [.., H / GROUP]. H a multiple of 8. tokens [rows] int.
// groups (rows, H / 8 / NT rounded up), NT threads
const int i = GK_GROUP_Y * NT + GK_TID;
const gk_long row = GK_GROUP_X;
if (i < H / 8) gk_store8<T>::at(y + row * H + i * 8, gk_table<BITS>::eight(table, ss, sb, (gk_long)tokens[row] * H + i * 8, GROUP));
