package runtime

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// rudeVariable names the user code that panics in a process of its own.
const rudeVariable = "VERBENA_TEST_RUDE"

// TestRudeProcess is the process of TestAPanicEndsTheProgram, where it does nothing itself.
func TestRudeProcess(t *testing.T) {
	kind := os.Getenv(rudeVariable)
	if kind == "" {
		return
	}
	r := newRudeRig(t, Config{})
	func() {
		defer func() { _ = recover() }() // as net/http does with a handler
		rudeCodes[kind].start(r, func() { panic(errRude) })
	}()
	arrives(t, "the end of the program", make(chan int))
}

// itself runs a test of this program in a process of its own, with one more variable.
func itself(t *testing.T, test, variable string) (out []byte, err error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(testContext(t), self, "-test.run=^"+test+"$")
	cmd.Env = append(os.Environ(), variable)
	if out, err = cmd.CombinedOutput(); errors.Is(err, syscall.ENOEXEC) {
		t.Skip("this processor is emulated: the system does not run this program by itself")
	}
	return out, err
}

// Rule: without a Config.OnPanic a panic of user code ends the program, with its value and
// the stack of where it happened, though it happens on a goroutine whose owner recovers.
func TestAPanicEndsTheProgram(t *testing.T) {
	notOnDevice(t, "its devices are made for the test")
	if os.Getenv(rudeVariable) != "" {
		return
	}
	for kind := range rudeCodes {
		t.Run(kind, func(t *testing.T) {
			out, err := itself(t, "TestRudeProcess", rudeVariable+"="+kind)
			exit, ok := errors.AsType[*exec.ExitError](err)
			if !ok || exit.ExitCode() != 2 {
				t.Fatalf("the process ended with %v, want exit status 2, as of a panic; it printed\n%s", err, out)
			}
			for _, want := range []string{"panic: " + errRude.Error(), "runtime.TestRudeProcess.func1.2"} {
				if !strings.Contains(string(out), want) {
					t.Errorf("the process did not print %q, but\n%s", want, out)
				}
			}
		})
	}
}
