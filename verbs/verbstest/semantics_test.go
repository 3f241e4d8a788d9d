package verbstest

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// unseen are the numbered semantics that a provider cannot show, with the reasons.
var unseen = map[int]string{
	15: "the one-request calls rdma_post_* are librdmacm's inline conveniences over ibv_post_*; the contract posts lists",
	16: "rdma_get_send_comp blocks; no call of the contract does",
	24: "garbage in a failed completion cannot be told from meaning: the suite reads wr_id, status and qp_num alone (assert.go, failed)",
	36: "ibv_start_poll is beneath the contract: verbs/ibv's own tests, and the pair ibv_null_extended_cq",
	39: "thread domains are chosen in verbs/ibv, by one owner; the suite is one goroutine",
	40: "which calls are symbols is the loader's: verbs/ibv's own tests",
}

// Rule: each numbered semantic from 15 to 42 has either a case, or a reason why a provider cannot
// show it.
func TestEverySemanticHasACase(t *testing.T) {
	numbers := regexp.MustCompile(`semantics ((?:\d+(?:, )?)+)`)
	cases := map[int][]string{}
	for _, s := range Cases() {
		for _, m := range numbers.FindAllStringSubmatch(s.Rule, -1) {
			for _, n := range strings.Split(m[1], ", ") {
				if i, err := strconv.Atoi(n); err == nil {
					cases[i] = append(cases[i], s.Name)
				}
			}
		}
	}
	for i := 15; i <= 42; i++ {
		switch why, ok := unseen[i]; {
		case ok && len(cases[i]) > 0:
			t.Errorf("semantic %d is said to be unseen (%s) and has the cases %v", i, why, cases[i])
		case !ok && len(cases[i]) == 0:
			t.Errorf("semantic %d has no case", i)
		}
	}
}
