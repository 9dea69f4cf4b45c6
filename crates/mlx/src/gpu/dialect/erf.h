// erf to 1.5e-7. Source: Abramowitz and Stegun 7.1.26; Metal has none.
GK_FN float gk_erf(float x) {
  const float a = x < 0 ? -x : x, t = 1.0f / (1.0f + 0.3275911f * a);
  const float p = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
  const float y = 1.0f - p * gk_exp(-a * a);
  return x < 0 ? -y : y;
}
