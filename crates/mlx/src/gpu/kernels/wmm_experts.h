// CUDA alone: the product of wmm_expert.h for many pairs: a group multiplies all pairs of its expert, 8 MT at a time.
// in: x [rows, K] of TX, w [E, N, ..], ss, sb as in wmm.h, order [P] and starts [E + 1] int (expert_rows.h)
// out: y [P, N] of TO
// groups (N / (16 RT WN) rounded up, E), WN simd groups; WK is 1, so that simd groups share nothing
GK_WAIT();                                // the pairs are sorted
const int K = x_shape[1], N = w_shape[1], SPLIT = 0, SPLITS = 1, end = starts[GK_GROUP_Y + 1];
const gk_long W0 = (gk_long)GK_GROUP_Y * N;
for (int first = starts[GK_GROUP_Y]; first < end; first += 8 * MT) {
const int M = end - first < 8 * MT ? end - first : 8 * MT;
auto x_row = [&](int m) { return order[first + m] / CHOSEN; };
auto y_row = [&](int m) { return (gk_long)order[first + m]; };
auto biased = [](float v, int) { return v; };
//@include wmm_body.h
GK_SIMD_BARRIER();                        // its part of shared memory is free
}
