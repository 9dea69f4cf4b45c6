// Calls multiply(gk_columns) for so many columns as a part has pairs, in steps of 32.
static_assert(MT == 16, "up to 128 columns");
switch ((last - pair + 31) / 32) {
  case 1: multiply(gk_columns<4>()); break;
  case 2: multiply(gk_columns<8>()); break;
  case 3: multiply(gk_columns<12>()); break;
  default: multiply(gk_columns<16>());
}
