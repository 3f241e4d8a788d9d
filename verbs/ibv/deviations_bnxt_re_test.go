//go:build linux && cgo && !portable

package ibv

// bnxtDeviations are those of NetXtreme-E.
var bnxtDeviations = stateBlind("providers/bnxt_re/verbs.c, bnxt_re_post_send and bnxt_re_post_recv")
