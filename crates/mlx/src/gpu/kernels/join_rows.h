// y = [a, b], the rows of both side by side. a [rows, A], b [rows, B] floats, y [rows, A + B] of T; A and B multiples of 8.
// groups ((A + B) / 8 / NT rounded up, rows), NT threads
const int i = GK_GROUP_X * NT + GK_TID;
const gk_long row = GK_GROUP_Y;
if (i < (A + B) / 8) {
  const bool first = i < A / 8;
  const gk_fv<8> x = first ? gk_load<8>(a + row * A + i * 8) : gk_load<8>(b + row * B + (i * 8 - A));
  gk_store8<T>::at(y + row * (A + B) + i * 8, x);
}
