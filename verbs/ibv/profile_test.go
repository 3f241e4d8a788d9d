//go:build linux && cgo && !portable

package ibv

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// profiled selects a profile of the null device for contexts that the test opens from now on.
func profiled(t testing.TB, name string) {
	t.Helper()
	null := must.Get(nulldev.Open(nullPaths(t)))(t)
	t.Cleanup(null.Close)
	must.Do(t, null.SetProfile(name))
}

// Rule: a context keeps the profile that was selected when it was opened.
func TestAContextKeepsItsProfile(t *testing.T) {
	p := provider(t, Config{Verbs: nullPaths(t).Verbs, RDMACM: nullPaths(t).RDMACM})
	profiled(t, "mlx5")
	const mellanox = 0x02c9
	mlx5 := opened(t, p, "null0")
	profiled(t, nulldev.Plain)
	plain := opened(t, p, "null0")
	for ctx, want := range map[verbs.Context]uint32{mlx5: mellanox, plain: 0} {
		if got := must.Get(ctx.QueryDevice())(t).VendorID; got != want {
			t.Errorf("the vendor is %#x, want %#x", got, want)
		}
	}
}
