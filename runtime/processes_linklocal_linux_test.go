package runtime

import (
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys/netns"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: between processes, a link-local address is refused at once, with the reason: by Dial, Listen, and both kinds of
// datagram calls.
func TestLinkLocalAddressesBetweenProcessesAreRefused(t *testing.T) {
	if !netns.Enter(t, "fe80::1%lo") {
		return
	}
	rt := mustOpen(t, Config{Provider: process(t)})
	packets := must.Get(rt.ListenPacket("127.0.0.1:0", Options{}))(t)
	const addr = "[fe80::1%lo]:7471"
	for name, call := range map[string]func() error{
		"Dial":         func() error { _, err := rt.Dial(testContext(t), addr); return err },
		"Listen":       func() error { _, err := rt.Listen(addr); return err },
		"ListenPacket": func() error { _, err := rt.ListenPacket(addr, Options{}); return err },
		"Resolve":      func() error { _, err := packets.Resolve(testContext(t), addr); return err },
	} {
		err := call()
		if err == nil || !strings.Contains(err.Error(), "no link-local addresses between processes (fe80::1%lo)") {
			t.Errorf("%s: %v, want the reason", name, err)
		}
		if r := verbs.RetryOf(err); r != verbs.RetryNever {
			t.Errorf("%s: %v, RetryOf %v, want %v", name, err, r, verbs.RetryNever)
		}
	}
}
