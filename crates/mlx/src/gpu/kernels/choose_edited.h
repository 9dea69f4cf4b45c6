// One token of each row, as in choose.h, of logits that are changed while they are read.
// in:  logits, numbers, top_k as there; starts [rows + 1] int: where each row's entries begin; edited [entries] int: their
//      tokens, ascending in a row; changes [entries, 3] float: what is added to the logit, what then divides it if it is
//      positive and multiplies it if not, what is then subtracted; places [rows] int: each row's mask, below 0 for none;
//      masks [masks, words] unsigned: a bit for each token, 0 for one that is not chosen
// out: tokens [rows] int
// groups (rows), NS simd groups
//@include choose_row.h
// A bit for each group of tokens that has an edited one: few logits are looked up.
GK_SHARED(gk_uint, marked, MARKS);
const int first_edit = starts[row], last_edit = starts[row + 1], mask = places[row];
const gk_long words = (gk_long)mask * masks_shape[1];
for (int i = tid; i < MARKS; i += NT) marked[i] = 0;
GK_BARRIER();
for (int i = first_edit + tid; i < last_edit; i += NT) {
  const gk_uint token = (gk_uint)edited[i];
  gk_shared_or(marked + (token / 32) % MARKS, 1u << token % 32);
}
GK_BARRIER();
#define GK_FORBIDDEN(i) (mask >= 0 && (masks[words + (i) / 32] >> (i) % 32 & 1) == 0)
#define GK_MARKED(i) (marked[(i) / 32 % MARKS] >> (i) % 32 & 1)
#define GK_LOGIT(i) (GK_FORBIDDEN(i) ? -3.4e38f : GK_MARKED(i) ? gk_edited(logits[base + (i)], changes, gk_find(edited, first_edit, last_edit, (i))) : logits[base + (i)])
//@include choose_body.h
#undef GK_LOGIT
#undef GK_MARKED
#undef GK_FORBIDDEN
