//go:build linux && !portable

package udp_test

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys/udp"
)

// BenchmarkSocket sends a datagram to a connected socket and receives it there.
func BenchmarkSocket(b *testing.B) {
	for name, size := range map[string]int{"40 B": 40, "4096 B": 4096} {
		b.Run(name, func(b *testing.B) {
			a := loopbacks["IPv4"]
			from, to := listenWith(b, a, joining), listenWith(b, a, joining)
			own := must.Get(from.Connect(a, to.Local(), joining))(b)
			b.Cleanup(func() { must.Do(b, own.Close()) })
			out := []udp.Out{{To: to.Local(), Data: make([]byte, size)}}
			in := []udp.In{{Buf: make([]byte, udp.MaxJoined)}}
			for b.Loop() {
				if n, err := own.Send(out); n != 1 || err != nil {
					b.Fatalf("Send returned %d, %v, want one datagram", n, err)
				}
				if n, err := to.Recv(in); n != 1 || err != nil {
					b.Fatalf("Recv returned %d, %v, want one datagram", n, err)
				}
			}
		})
	}
}
