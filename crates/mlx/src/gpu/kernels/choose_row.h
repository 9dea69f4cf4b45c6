constexpr int NT = NS * 32, NP = 8;
constexpr gk_uint ONE = 1u << 30;
GK_SHARED(gk_uint, list_q, CAP);                              // tokens between two weights, in any order
GK_SHARED(gk_uint, list_id, CAP);
GK_SHARED(gk_uint, listed, 1);
GK_SHARED(gk_uint, counts, NS * NP + NP);
GK_SHARED(gk_ulong, sums, NS * NP + NP);
GK_SHARED(float, tops, NS);
GK_SHARED(int, ats, NS);
const int row = GK_GROUP_X, tid = GK_TID, lane = GK_LANE, simd = GK_SIMD, V = logits_shape[1];
const gk_long base = (gk_long)row * V;
const float temperature = numbers[row * 4], top_p = numbers[row * 4 + 1], min_p = numbers[row * 4 + 2], share = numbers[row * 4 + 3];
const int k = top_k[row];
