// One token of each row, without a sort. A token's weight is exp((logit - the largest) / temperature) in units of 2^-30, so
// that sums are exact in any order. Tokens are ordered by weight, the largest first, equal ones by id: what a filter keeps is
// a prefix of that order, and ends at the weight cut_q and, of those that have just that, at the id cut_id.
// in:  logits [rows, V] float; numbers [rows, 4] float: temperature (below 1e-30: the largest logit), top_p, min_p, a share in [0, 1);
//      top_k [rows] int, below 1 for all
// out: tokens [rows] int: of what min_p, top_k and then top_p keep, the first in the order of ids whose weight, with those
//      before it, passes the share of all
// groups (rows), NS simd groups
//@include choose_row.h
#define GK_LOGIT(i) logits[base + (i)]
//@include choose_body.h
#undef GK_LOGIT
