// CUDA alone: y[p][n] = sum over k of x[p / CHOSEN][k] w[experts[p]][n][k], for pairs p of a row and an
// expert: few pairs, one a group.
// in: x [rows, K] of TX, w [E, N, ..], ss, sb as in wmm.h, experts [P] uint; out: y [P, N] of TO
// groups (N / (16 RT WN) rounded up, P), WN WK simd groups; MT is 1
GK_WAIT();                                // the experts are chosen
const int M = 1, K = x_shape[1], N = w_shape[1], SPLIT = 0, SPLITS = 1, pair = GK_GROUP_Y;
const gk_long W0 = (gk_long)experts[pair] * N;
auto x_row = [&](int) { return pair / CHOSEN; };
auto y_row = [&](int) { return (gk_long)pair; };
auto biased = [](float v, int) { return v; };
//@include wmm_body.h
