// CUDA alone: y[m][h][n] = sum over k of x[m][h][k] w[h][n][k], for up to 8 MT rows at a time: a product for each head.
// in: x [rows, HEADS PITCH] of TX: row m has what head h reads from h PITCH on; w [HEADS, N, ..], ss, sb as in wmm.h
// out: y [rows, HEADS, N] of TO
// groups (N / (16 RT WN) rounded up, HEADS), WN WK simd groups
const int K = INPUTS, N = w_shape[1], SPLIT = 0, SPLITS = 1, rows = x_shape[0], HEADS = w_shape[0];
const gk_long W0 = (gk_long)GK_GROUP_Y * N;
for (int first = 0; first < rows; first += 8 * MT) {
const int M = rows - first < 8 * MT ? rows - first : 8 * MT;
auto x_row = [&](int m) { return (first + m) * HEADS + GK_GROUP_Y; };
auto y_row = [&](int m) { return (gk_long)(first + m) * HEADS + GK_GROUP_Y; };
auto biased = [](float v, int) { return v; };
//@include wmm_body.h
GK_BARRIER();                             // shared memory is free
}
