//go:build linux && cgo && !portable

package ibv

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// hugePagesSafe is the variable that ibv_fork_init reads.
const hugePagesSafe = "RDMAV_HUGEPAGES_SAFE"

// Rule: fork support is requested from the library only where the kernel lacks it, before any
// other call, once, and never against the policy; and with support of huge pages. Its failure is no error.
func TestForkPolicy(t *testing.T) {
	const (
		asked = "#include <stdlib.h>\nstatic int init, status = %d;\n" +
			"int ibv_fork_init(void) { init++; if (%d) return %d; status = getenv(\"RDMAV_HUGEPAGES_SAFE\") ? 1 : 7; return 0; }\n"
		answers = "unsigned int ibv_is_fork_initialized(void) { return init > 1 || (!init && getenv(\"RDMAV_HUGEPAGES_SAFE\")) ? 9 : (unsigned int)status; }\n"
	)
	for _, x := range []struct {
		name     string
		text     string
		policy   ForkPolicy
		want     ForkStatus
		wantName string
	}{
		{"needed", fmt.Sprintf(asked, 0, 0, 0) + answers, ForkAuto, ForkEnabled, "ENABLED"},
		{"unneeded", fmt.Sprintf(asked, 2, 0, 0) + answers, ForkAuto, ForkUnneeded, "UNNEEDED"},
		{"off", fmt.Sprintf(asked, 0, 0, 0) + answers, ForkOff, ForkDisabled, "DISABLED"},
		{"too late", fmt.Sprintf(asked, 0, 1, 22) + answers, ForkAuto, ForkDisabled, "DISABLED"},
		{"a library that cannot tell", fmt.Sprintf(asked, 0, 0, 0), ForkAuto, ForkUnknown, "UNKNOWN"},
		{"a library that has neither", "", ForkAuto, ForkUnknown, "UNKNOWN"},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Setenv(hugePagesSafe, "") // restores it
			must.Do(t, os.Unsetenv(hugePagesSafe))
			p := provider(t, Config{Verbs: library(t, tiny("one")+x.text), Fork: x.policy})
			if _, err := p.Devices(); err != nil {
				t.Fatal(err)
			}
			if s, err := p.ForkStatus(); err != nil || s != x.want || s.String() != x.wantName {
				t.Errorf("the state is %v, error %v; want %v", s, err, x.want)
			}
		})
	}
	p := provider(t, Config{Verbs: t.TempDir() + "/absent.so"})
	var lib *LibraryError
	if _, err := p.ForkStatus(); !errors.As(err, &lib) {
		t.Errorf("without a library: %v", err)
	}
}

// Rule: memory in huge pages can be registered where the kernel lacks fork support.
func TestMemoryInHugePagesIsRegistered(t *testing.T) {
	t.Setenv(hugePagesSafe, "") // restores it
	must.Do(t, os.Unsetenv(hugePagesSafe))
	p := provider(t, Config{Verbs: nullPaths(t).Verbs, RDMACM: nullPaths(t).RDMACM})
	profiled(t, "hugepages")
	ctx := opened(t, p, "null0")
	if s := must.Get(p.ForkStatus())(t); s != ForkEnabled {
		t.Fatalf("the state is %v, want %v", s, ForkEnabled)
	}
	pd := must.Get(ctx.AllocPD())(t)
	defer func() { must.Do(t, pd.Close()) }()
	arena := must.Get(mem.Map(1<<16, mem.Options{}))(t)
	defer func() { must.Do(t, arena.Unmap()) }()
	mr, err := pd.RegMR(arena.Addr(), 4096, arena.Addr(), verbs.AccessLocalWrite)
	if err != nil {
		t.Fatalf("registering 4 KiB within a huge page returned %v, want no error", err)
	}
	must.Do(t, mr.Close())
}
