//go:build linux && cgo && !portable

package runtime

import (
	"errors"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// cCalls are the calls of the two C libraries that the scenario of nth_test.go
// comes by, and how its errors must tell of them: 0 is the errno itself.
var cCalls = []struct {
	call string
	err  syscall.Errno // what shows, if not what was given
	may  bool          // the runtime may cope: it tries again
}{
	{call: "ibv_get_device_list"}, {call: "ibv_open_device"}, {call: "ibv_query_device_ex"}, {call: "ibv_query_port"},
	{call: "ibv_alloc_pd"}, {call: "ibv_create_comp_channel"}, {call: "ibv_reg_mr_iova2"},
	{call: "ibv_modify_qp"}, {call: "ibv_post_send"}, {call: "ibv_post_recv"}, {call: "ibv_req_notify_cq"},
	{call: "ibv_poll_cq", err: syscall.EIO}, // the contract's word for a queue that gives nothing
	{call: "rdma_create_event_channel"}, {call: "rdma_create_id"}, {call: "rdma_bind_addr"}, {call: "rdma_listen"},
	{call: "rdma_resolve_addr"}, {call: "rdma_resolve_route"}, {call: "rdma_connect"}, {call: "rdma_accept"},
	{call: "rdma_init_qp_attr"}, {call: "rdma_establish"}, {call: "rdma_disconnect"},
	{call: "ibv_dereg_mr"}, {call: "ibv_destroy_qp", may: true}, {call: "ibv_destroy_cq"}, {call: "ibv_destroy_comp_channel"},
	{call: "ibv_dealloc_pd"}, {call: "ibv_close_device"}, {call: "rdma_destroy_id", may: true},
}

// Rule: an errno from any call of the libraries, given in any of the ways that
// libraries have, ends what needed the call with that errno and nothing else
// hangs; when all is closed nothing is left (semantics 23).
// Defence: verbs/ibv/shim (the errnos), and every error path above.
func TestNullErrnoOfAnyCall(t *testing.T) {
	p, null := nullDevice(t)
	for _, f := range cCalls {
		for how, name := range map[nulldev.How]string{nulldev.ByErrno: "errno", nulldev.MinusOne: "minus_one", nulldev.Negative: "negative"} {
			if how != nulldev.ByErrno && testing.Short() {
				continue
			}
			t.Run(f.call+"/"+name, func(t *testing.T) {
				before := null.Stats()
				id, err := null.Add(nulldev.Fault{Kind: nulldev.FailCall, Call: f.call, Count: 1, Err: syscall.EDQUOT, How: how})
				if err != nil {
					t.Fatal(err)
				}
				defer null.Clear()
				err = nthScenario([2]string{"null0", "null1"})(p)
				want := f.err
				if want == 0 {
					want = syscall.EDQUOT // nobody else gives this one
				}
				if null.Hits(id) != 1 {
					t.Fatalf("the call was made to fail %d times", null.Hits(id))
				}
				if !errors.Is(err, want) && !(f.may && err == nil) {
					t.Errorf("what came of it: %v, want %v in it", err, want)
				}
				after := null.Stats()
				if after.Objects != before.Objects || after.Contexts != before.Contexts || after.Unacked != before.Unacked {
					t.Errorf("left in the library: %v, %d contexts, %d events; before: %v, %d, %d",
						after.Objects, after.Contexts, after.Unacked, before.Objects, before.Contexts, before.Unacked)
				}
			})
		}
	}
}
