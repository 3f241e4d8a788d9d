package runtime_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/reactor"
	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/runtime/actor"
	"github.com/verbena-rdma/verbena/runtime/plog"
	"github.com/verbena-rdma/verbena/runtime/rpma"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/bootstrap"
	"github.com/verbena-rdma/verbena/verbs/ibv"
	"github.com/verbena-rdma/verbena/verbs/open"
	"github.com/verbena-rdma/verbena/verbs/soft/cm"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

const (
	never     = verbs.RetryNever
	reconnect = verbs.RetryReconnect
	later     = verbs.RetryLater
)

// answers is the table of every sentinel error and every error type that the public packages export.
// The key is the name of the error.
var answers = map[string]struct {
	err   error       // an example of the error
	retry verbs.Retry // the result of RetryOf for err
	like  error       // net.ErrClosed or os.ErrDeadlineExceeded, if err matches it; otherwise nil
}{
	"verbs.ErrBusy":              {verbs.ErrBusy, later, nil},
	"verbs.ErrClosed":            {verbs.ErrClosed, never, net.ErrClosed},
	"verbs.ErrNotSupported":      {verbs.ErrNotSupported, never, nil},
	"verbs.ErrInvalid":           {verbs.ErrInvalid, never, nil},
	"verbs.ErrInvalidTransition": {verbs.ErrInvalidTransition, never, nil},
	"verbs.ErrDeviceRemoved":     {verbs.ErrDeviceRemoved, never, nil},
	"verbs.ErrUnknownDevice":     {verbs.ErrUnknownDevice, never, nil},
	"verbs.ErrMemlock":           {verbs.ErrMemlock, later, nil},
	"verbs.ErrCgroup":            {verbs.ErrCgroup, later, nil},
	"verbs.ErrNoGID":             {verbs.ErrNoGID, later, nil},
	"verbs.OpError":              {&verbs.OpError{Op: "ibv_x", Err: verbs.ErrBusy}, later, nil},
	"verbs.WCError":              {&verbs.WCError{Status: verbs.WCRetryExcErr}, reconnect, os.ErrDeadlineExceeded},
	"verbs.DeviceError":          {&verbs.DeviceError{}, never, nil},

	"verbs/bootstrap.ErrMalformed":  {bootstrap.ErrMalformed, never, nil},
	"verbs/bootstrap.ErrDest":       {bootstrap.ErrDest, never, nil},
	"verbs/open.ErrName":            {open.ErrName, never, nil},
	"verbs/open.ErrNoPort":          {open.ErrNoPort, later, nil},
	"verbs/ibv.LibraryError":        {&ibv.LibraryError{}, never, nil},
	"verbs/ibv.SymbolError":         {&ibv.SymbolError{}, never, nil},
	"verbs/soft/cm.ErrState":        {cm.ErrState, never, nil},
	"verbs/soft/cm.ErrInUse":        {cm.ErrInUse, never, nil},
	"verbs/soft/cm.ErrMalformed":    {cm.ErrMalformed, never, nil},
	"verbs/soft/cm.ErrRange":        {cm.ErrRange, never, nil},
	"verbs/soft/cm.StateError":      {&cm.StateError{}, never, nil},
	"verbs/soft/cm.FieldError":      {&cm.FieldError{}, never, nil},
	"verbs/soft/fabric.ErrGIDInUse": {fabric.ErrGIDInUse, never, nil},
	"verbs/soft/fabric.AttachError": {&fabric.AttachError{}, never, nil},
	"verbs/soft/wire.ErrMalformed":  {wire.ErrMalformed, never, nil},
	"verbs/soft/wire.ParseError":    {&wire.ParseError{}, never, nil},

	"futures.ErrNilContext": {futures.ErrNilContext, never, nil},
	"futures.ErrInvalid":    {futures.ErrInvalid, never, nil},
	"futures.ErrConsumed":   {futures.ErrConsumed, never, nil},
	"futures.ErrDiscarded":  {futures.ErrDiscarded, never, nil},
	"futures.ErrAwaited":    {futures.ErrAwaited, never, nil},
	"futures.ErrEmpty":      {futures.ErrEmpty, never, nil},
	"futures.MisuseError":   {new(futures.MisuseError), never, nil},

	"reactor.ErrConfig":      {reactor.ErrConfig, never, nil},
	"reactor.ErrClosed":      {reactor.ErrClosed, never, net.ErrClosed},
	"reactor.ErrQueueFull":   {reactor.ErrQueueFull, later, nil},
	"reactor.ErrRecvFull":    {reactor.ErrRecvFull, later, nil},
	"reactor.ErrQueueFailed": {reactor.ErrQueueFailed, reconnect, nil},
	"reactor.ErrTooMany":     {reactor.ErrTooMany, later, nil},
	"reactor.ErrOverrun":     {reactor.ErrOverrun, reconnect, nil},
	"reactor.ErrUnanswered":  {reactor.ErrUnanswered, never, nil},
	"reactor.ErrRequest":     {reactor.ErrRequest, never, nil},
	"reactor.ErrNilContext":  {reactor.ErrNilContext, never, nil},
	"reactor.PanicError":     {&reactor.PanicError{}, never, nil},

	"runtime.ErrQueueFull":      {verbena.ErrQueueFull, later, nil},
	"runtime.ErrNoCredit":       {verbena.ErrNoCredit, later, nil},
	"runtime.ErrRecvFull":       {verbena.ErrRecvFull, later, nil},
	"runtime.ErrTooMany":        {verbena.ErrTooMany, later, nil},
	"runtime.ErrBusy":           {verbena.ErrBusy, later, nil},
	"runtime.ErrNoRequest":      {verbena.ErrNoRequest, later, nil},
	"runtime.ErrMemlock":        {verbena.ErrMemlock, later, nil},
	"runtime.ErrNoGID":          {verbena.ErrNoGID, later, nil},
	"runtime.ErrUnreachable":    {verbena.ErrUnreachable, later, nil},
	"runtime.ErrConnectTimeout": {verbena.ErrConnectTimeout, later, os.ErrDeadlineExceeded},
	"runtime.ErrReactorBusy":    {verbena.ErrReactorBusy, later, os.ErrDeadlineExceeded},
	"runtime.ErrNoMemory":       {verbena.ErrNoMemory, later, nil},
	"runtime.ErrQueueFailed":    {verbena.ErrQueueFailed, reconnect, nil},
	"runtime.ErrPeerClosed":     {verbena.ErrPeerClosed, reconnect, nil},
	"runtime.ErrPeerTimeout":    {verbena.ErrPeerTimeout, reconnect, os.ErrDeadlineExceeded},
	"runtime.ErrQueuePair":      {verbena.ErrQueuePair, reconnect, nil},
	"runtime.ErrClosed":         {verbena.ErrClosed, never, net.ErrClosed},
	"runtime.ErrConnClosed":     {verbena.ErrConnClosed, never, net.ErrClosed},
	"runtime.ErrWindowClosed":   {verbena.ErrWindowClosed, never, net.ErrClosed},
	"runtime.ErrCancelled":      {verbena.ErrCancelled, never, nil},
	"runtime.ErrDeviceRemoved":  {verbena.ErrDeviceRemoved, never, nil},
	"runtime.ErrUnknownDevice":  {verbena.ErrUnknownDevice, never, nil},
	"runtime.ErrNotSupported":   {verbena.ErrNotSupported, never, nil},
	"runtime.ErrConfig":         {verbena.ErrConfig, never, nil},
	"runtime.ErrInvalid":        {verbena.ErrInvalid, never, nil},
	"runtime.ErrNilContext":     {verbena.ErrNilContext, never, nil},
	"runtime.ErrAddress":        {verbena.ErrAddress, never, nil},
	"runtime.ErrMode":           {verbena.ErrMode, never, nil},
	"runtime.ErrTooLarge":       {verbena.ErrTooLarge, never, nil},
	"runtime.ErrPieces":         {verbena.ErrPieces, never, nil},
	"runtime.ErrPermission":     {verbena.ErrPermission, never, nil},
	"runtime.ErrRemoteRange":    {verbena.ErrRemoteRange, never, nil},
	"runtime.ErrRange":          {verbena.ErrRange, never, nil},
	"runtime.ErrNoBuffer":       {verbena.ErrNoBuffer, later, nil},
	"runtime.ErrReleased":       {verbena.ErrReleased, never, nil},
	"runtime.ErrOwnMemory":      {verbena.ErrOwnMemory, never, nil},
	"runtime.ErrWindowState":    {verbena.ErrWindowState, never, nil},
	"runtime.ErrMessage":        {verbena.ErrMessage, never, nil},
	"runtime.ErrAnswered":       {verbena.ErrAnswered, never, nil},
	"runtime.ErrPeerProtocol":   {verbena.ErrPeerProtocol, never, nil},
	"runtime.ErrProtocol":       {verbena.ErrProtocol, never, nil},
	"runtime.ErrDescriptor":     {verbena.ErrDescriptor, never, nil},
	"runtime.ErrUnanswered":     {verbena.ErrUnanswered, never, nil},
	"runtime.RejectError":       {&verbena.RejectError{Reason: verbs.RejInvalidServiceID}, later, nil},
	"runtime.Refusal":           {&verbena.Refusal{}, never, nil},
	"runtime.PeerTimeoutError":  {&verbena.PeerTimeoutError{}, reconnect, os.ErrDeadlineExceeded},
	"runtime.ProtocolError":     {&verbena.ProtocolError{}, never, nil},
	"runtime.DescriptorError":   {&verbena.DescriptorError{}, never, nil},
	"runtime.RangeError":        {&verbena.RangeError{}, never, nil},
	"runtime.OwnMemoryError":    {&verbena.OwnMemoryError{}, never, nil},
	"runtime.NoMemoryError":     {&verbena.NoMemoryError{Limit: 8, Mapped: 8, Wanted: 8}, later, nil},
	"runtime.MemlockError":      {&verbena.MemlockError{Limit: 8, Registered: 8, Wanted: 8}, later, nil},

	"runtime/actor.ErrConfig":        {actor.ErrConfig, never, nil},
	"runtime/actor.ErrClosed":        {actor.ErrClosed, never, net.ErrClosed},
	"runtime/actor.ErrStopped":       {actor.ErrStopped, never, nil},
	"runtime/actor.ErrMailboxFull":   {actor.ErrMailboxFull, later, nil},
	"runtime/actor.ErrWouldDeadlock": {actor.ErrWouldDeadlock, never, nil},
	"runtime/actor.ErrNoReply":       {actor.ErrNoReply, never, nil},
	"runtime/actor.ErrNoActor":       {actor.ErrNoActor, never, nil},
	"runtime/actor.ErrTooMany":       {actor.ErrTooMany, later, nil},
	"runtime/actor.ErrUnhandled":     {actor.ErrUnhandled, never, nil},
	"runtime/actor.ErrRestarted":     {actor.ErrRestarted, never, nil},
	"runtime/actor.ErrEscalated":     {actor.ErrEscalated, never, nil},
	"runtime/actor.ErrGoexit":        {actor.ErrGoexit, never, nil},

	"runtime/plog.ErrNoLog":    {plog.ErrNoLog, never, nil},
	"runtime/plog.ErrCorrupt":  {plog.ErrCorrupt, never, nil},
	"runtime/plog.ErrFailed":   {plog.ErrFailed, never, nil},
	"runtime/plog.ErrGeometry": {plog.ErrGeometry, never, nil},
	"runtime/plog.ErrLane":     {plog.ErrLane, never, nil},
	"runtime/plog.ErrLaneHeld": {plog.ErrLaneHeld, later, nil},
	"runtime/plog.ErrFull":     {plog.ErrFull, later, nil},
	"runtime/plog.ErrUnknown":  {plog.ErrUnknown, never, nil},
	"runtime/plog.ErrTrimmed":  {plog.ErrTrimmed, never, nil},
	"runtime/plog.ErrTooLarge": {plog.ErrTooLarge, never, nil},
	"runtime/plog.ErrMessage":  {plog.ErrMessage, never, nil},

	"runtime/rpma.Code":  {rpma.ErrNoEvent, later, nil},
	"runtime/rpma.Error": {&rpma.Error{Code: rpma.ErrInvalid}, never, nil},
}

// Rule: for each error that a public package exports, RetryOf returns the result in the table (answers). The
// error matches net.ErrClosed or os.ErrDeadlineExceeded if the table says so, and otherwise matches
// neither.
func TestEveryErrorAnswers(t *testing.T) {
	named := exportedErrors(t)
	for name := range named {
		if _, ok := answers[name]; !ok {
			t.Errorf("the exported error %s is not in the table (variable answers), want an entry for every exported error", name)
		}
	}
	for name, a := range answers {
		if !named[name] {
			t.Errorf("%s has an entry in the table (variable answers), but is not an exported error", name)
		}
		if got := verbena.RetryOf(a.err); got != a.retry || verbena.Retryable(a.err) != (got == later) {
			t.Errorf("%s: RetryOf returns %v and Retryable %t, want %v and %t", name, got, verbena.Retryable(a.err), a.retry, a.retry == later)
		}
		for _, like := range []error{net.ErrClosed, os.ErrDeadlineExceeded} {
			if is := errors.Is(a.err, like); is != (like == a.like) {
				t.Errorf("errors.Is(%s, %q) returns %t, want %t", name, like, is, like == a.like)
			}
		}
		if closed := errors.Is(a.err, os.ErrClosed); closed != errors.Is(a.err, verbena.ErrClosed) || closed != errors.Is(a.err, net.ErrClosed) {
			t.Errorf("%s matches only some of net.ErrClosed, os.ErrClosed and ErrClosed, want all or none", name)
		}
		var ne net.Error
		if late := errors.As(a.err, &ne) && ne.Timeout(); late != (a.like == os.ErrDeadlineExceeded) {
			t.Errorf("%s as a net.Error: Timeout returns %t, want %t (false also stands for an error that is no net.Error)", name, late, a.like == os.ErrDeadlineExceeded)
		}
	}
}

// exportedErrors returns the exported errors of all packages that other modules can import:
// variables named Err…, and types with a method Error. The keys have the form "folder.Name".
func exportedErrors(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, room := range []string{"verbs", "futures", "reactor", "runtime"} {
		eachFile(t, room, func(dir string, f *ast.File) {
			for _, d := range f.Decls {
				switch d := d.(type) {
				case *ast.FuncDecl:
					if d.Recv == nil || d.Name.Name != "Error" || f.Name.Name == "main" {
						continue
					}
					recv := d.Recv.List[0].Type
					if star, ok := recv.(*ast.StarExpr); ok {
						recv = star.X
					}
					if id, ok := recv.(*ast.Ident); ok && id.IsExported() {
						found[dir+"."+id.Name] = true
					}
				case *ast.GenDecl:
					for _, spec := range d.Specs {
						if v, ok := spec.(*ast.ValueSpec); ok && d.Tok == token.VAR {
							for _, id := range v.Names {
								if regexp.MustCompile(`^Err[A-Z]`).MatchString(id.Name) {
									found[dir+"."+id.Name] = true
								}
							}
						}
					}
				}
			}
		})
	}
	return found
}

// Rule: comments of the packages runtime and actor do not name errors of the packages verbs,
// reactor, futures and ring (such as verbs.ErrBusy), because a user of runtime or actor need not
// import these packages.
func TestManualsNameTheirOwnErrors(t *testing.T) {
	foreign := regexp.MustCompile(`\b(verbs|reactor|futures|ring)\.(Err[A-Z]\w*|WCError|OpError|DeviceError|PanicError)\b`)
	eachFile(t, "runtime", func(dir string, f *ast.File) {
		for _, c := range f.Comments {
			if name := foreign.FindString(c.Text()); name != "" {
				t.Errorf("a comment of package %s names %s, want the name that the package itself exports", dir, name)
			}
		}
	})
}

// eachFile parses all Go files, except tests, of one folder of the module and its subfolders. It
// calls fn for each file. It skips internal packages, testdata and the null device.
func eachFile(t *testing.T, room string, fn func(dir string, f *ast.File)) {
	t.Helper()
	root := os.DirFS("..")
	err := fs.WalkDir(root, room, func(p string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == "testdata" || e.Name() == "internal" || p == "verbs/ibv/nulldev"):
			return fs.SkipDir
		case e.IsDir() || path.Ext(p) != ".go" || strings.HasSuffix(p, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", p), nil, parser.ParseComments)
		if err == nil {
			fn(path.Dir(p), f)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
