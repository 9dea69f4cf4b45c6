// Runs of rows that advance the state of a sequence, [RUNS, 4] int: first row, rows, the slot that the state after them goes
// to (below zero: no state, and results of zeros), the slot that it comes from (below zero: zeros). A run that starts from
// what the run before it wrote belongs to that one: a group takes them all, from RUN to LAST, and keeps the state.
const int from = runs[RUN * 4 + 3], first = runs[RUN * 4];
if (RUN > 0 && from >= 0 && from == runs[RUN * 4 - 2] && first == runs[RUN * 4 - 4] + runs[RUN * 4 - 3]) return;
int LAST = RUN, length = runs[RUN * 4 + 1];
while (LAST + 1 < RUNS && runs[LAST * 4 + 7] >= 0 && runs[LAST * 4 + 7] == runs[LAST * 4 + 2] && runs[LAST * 4 + 4] == first + length) {
  ++LAST;
  length += runs[LAST * 4 + 1];
}
const bool idle = runs[RUN * 4 + 2] < 0;
