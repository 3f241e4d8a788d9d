//go:build linux && !portable

package udp_test

import (
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys/udp"
)

// Rule: only a socket with Options.Refusals learns that a destination has no socket. Any other sends and receives as if
// nothing had happened: a stranger who closes its socket takes nothing from others. (The bug: each report cost a datagram
// and ended a run that receives; 23,000 a second ended connections.)
func TestOnlyASocketThatAsksLearnsOfRefusals(t *testing.T) {
	for name, a := range loopbacks {
		t.Run(name, func(t *testing.T) {
			live := listen(t, a)
			w := newWaiter(t, live)
			closed := must.Get(udp.Listen(netip.AddrPortFrom(a, 0), udp.Options{}))(t)
			nowhere := closed.Local()
			must.Do(t, closed.Close())
			for _, asks := range []bool{false, true} {
				s := listenWith(t, a, udp.Options{ReceiveBuffer: 1 << 20, Refusals: asks})
				const rounds = 20
				learned := 0
				for range rounds {
					outs := []udp.Out{{To: nowhere, Data: []byte("to nobody")}, {To: live.Local(), Data: []byte("to a socket")}}
					for len(outs) > 0 {
						n, err := s.Send(outs)
						if err != nil && !asks {
							t.Fatalf("Send: %v", err)
						}
						if err != nil {
							n++
						}
						outs = outs[n:]
					}
					var quoted [64]byte
					for to, n, ok := s.Refused(quoted[:]); ok; to, n, ok = s.Refused(quoted[:]) {
						if to == nowhere && string(quoted[:n]) == "to nobody" {
							learned++
						}
					}
				}
				if asks != (learned > 0) {
					t.Errorf("with Refusals %v the socket learned of %d refusals", asks, learned)
				}
				if !asks {
					w.recv(t, rounds, 64)
				}
			}
		})
	}
}
