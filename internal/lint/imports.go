package lint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// layer is a layer: a folder with all its subfolders that are not rooms of their own, and the
// packages of this module that its code and its tests may import.
type layer struct {
	path  string
	uses  []string // rooms that its code may import, itself always
	tests []string // rooms that its tests may import in addition
}

// layers are the rows of the design's list, from the bottom. A package belongs to the room with
// the longest matching path. A room imports only rooms below it in the layering. Tests may also
// use a provider to run on, and the conformance suite; no test imports a higher layer, but for the table of all errors in runtime.
var layers = []layer{
	{path: "internal/model"},
	{path: "internal", uses: []string{"internal/model"}},
	{path: "verbs", uses: []string{"internal"}, tests: []string{"verbs/verbstest", "verbs/soft"}},
	{path: "verbs/verbstest", uses: []string{"internal", "verbs"}, tests: []string{"verbs/soft"}},
	{path: "verbs/soft", uses: []string{"internal", "verbs"}, tests: []string{"verbs/verbstest"}},
	{path: "verbs/ibv", uses: []string{"internal", "verbs"}, tests: []string{"verbs/verbstest", "verbs/soft"}},
	{path: "verbs/open", uses: []string{"internal", "verbs", "verbs/soft", "verbs/ibv"}},
	{path: "futures", uses: []string{"internal/model"}, tests: []string{"internal"}},
	{path: "reactor", uses: []string{"internal", "internal/model", "verbs", "futures"}, tests: []string{"verbs/soft", "verbs/ibv"}},
	{path: "runtime", uses: []string{"internal", "internal/model", "verbs", "verbs/open", "futures", "reactor"}, tests: []string{"verbs/soft", "verbs/ibv", "verbs/verbstest", "runtime/rpma"}},
	{path: "rdmacm", uses: []string{"internal", "verbs", "verbs/open", "futures", "reactor"}, tests: []string{"verbs/soft", "verbs/ibv", "verbs/verbstest"}},
	{path: "runtime/rpma", uses: []string{"internal", "verbs", "verbs/open", "futures", "reactor", "runtime"}, tests: []string{"verbs/soft", "verbs/ibv", "verbs/verbstest", "rdmacm"}},
	{path: "runtime/internal/outage", uses: []string{"internal", "verbs", "verbs/soft", "verbs/ibv", "futures", "reactor", "runtime"}},
	{path: "examples", uses: []string{"verbs", "verbs/soft", "verbs/ibv", "futures", "reactor", "runtime", "runtime/rpma", "rdmacm"}, tests: []string{"internal"}},
	{path: "benchmarks", uses: []string{"internal", "verbs", "verbs/soft", "verbs/ibv", "futures", "reactor", "runtime", "runtime/rpma", "rdmacm"}},
	{path: "scripts"},
	{path: "scripts/device", uses: []string{"internal", "verbs", "verbs/soft", "verbs/ibv", "verbs/open", "verbs/verbstest", "reactor", "runtime"}},
	{path: "docs", uses: []string{"verbs", "futures", "reactor", "runtime"}},
}

// dependencies are the modules that code may import; testDependencies those that tests may import
// in addition. The reasons are in docs/dependencies.md.
var (
	dependencies = []string{"github.com/panjf2000/ants/v2", "go.uber.org/atomic",
		"github.com/cespare/xxhash/v2", "golang.org/x/sys"}
	testDependencies = []string{"pgregory.net/rapid"}
)

// moduleDependencies are what the folders that are modules of their own may import in addition.
var moduleDependencies = map[string][]string{
	"benchmarks/actorpeers": {"github.com/anthdm/hollywood", "github.com/asynkron/protoactor-go", "github.com/ergo-services/ergo",
		"github.com/tochemey/goakt/v3", "google.golang.org/protobuf"},
}

// cgoRooms and unsafeRooms are the folders that may hold import "C" and unsafe.
// The layout assertions of verbs, its files layout*.go, may hold unsafe too.
var (
	cgoRooms    = []string{"verbs/ibv"}
	unsafeRooms = []string{"verbs/ibv", "internal/mem", "internal/ring", "internal/sys"}
)

// below reports whether p is dir or below it.
func below(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

func belowAny(p string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return below(p, d) })
}

// layerOf returns the room of a folder; nil if there is none.
func layerOf(dir string) *layer {
	var best *layer
	for i := range layers {
		if r := &layers[i]; below(dir, r.path) && (best == nil || len(r.path) > len(best.path)) {
			best = r
		}
	}
	return best
}

func (s *source) imports() (found []string) {
	own := layerOf(s.dir())
	if own == nil {
		found = append(found, fmt.Sprintf("%s:1: %s is in no room of the design", s.path, s.dir()))
	}
	for _, spec := range s.ast.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser would have refused it
		}
		say := func(format string, args ...any) { found = append(found, s.at(spec.Pos(), format, args...)) }
		layout := s.dir() == "verbs" && strings.HasPrefix(s.path, "verbs/layout")
		switch {
		case p == "C":
			if !belowAny(s.dir(), cgoRooms) {
				say("cgo: only in %s", strings.Join(cgoRooms, ", "))
			}
		case p == "unsafe":
			if !belowAny(s.dir(), unsafeRooms) && !layout {
				say("unsafe: only in %s and verbs/layout*.go", strings.Join(unsafeRooms, ", "))
			}
		case below(p, module):
			if own != nil {
				if to := layerOf(strings.TrimPrefix(p, module+"/")); to == nil || !own.mayUse(to, s.test()) {
					say("%s may not import %s: imports point down the list of rooms", own.path, p)
				}
			}
		case strings.Contains(strings.SplitN(p, "/", 2)[0], "."):
			if own != nil && own.path == "scripts" {
				say("scripts use the standard library alone, not %s", p)
			} else if !belowAny(p, dependencies) && !(s.test() && belowAny(p, testDependencies)) && !belowAny(p, moduleDependencies[s.dir()]) {
				say("%s is no dependency of ours: see docs/dependencies.md", p)
			}
		}
	}
	return found
}

func (r *layer) mayUse(to *layer, test bool) bool {
	return r == to || slices.Contains(r.uses, to.path) || test && slices.Contains(r.tests, to.path)
}
