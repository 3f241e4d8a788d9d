package side

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
)

// The first words of the lines.
const (
	wordReady  = "ready"
	wordRound  = "round"
	wordOK     = "ok"
	wordCannot = "cannot"
)

// Serve is the child's loop: it announces that it is ready, and runs each round that comes from
// in, until in ends. An error of run is sent to the parent, and is not returned. It blocks; run
// is called on this goroutine.
func Serve(in io.Reader, out io.Writer, run func(rounds.Values) (rounds.Values, error)) error {
	if _, err := fmt.Fprintln(out, wordReady); err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		if word != wordRound {
			return fmt.Errorf("side: %q is no round", lines.Text())
		}
		told, err := rounds.Parse(rest)
		if err != nil {
			return err
		}
		found, err := run(told)
		if err != nil {
			err = Cannot(out, err)
		} else {
			_, err = fmt.Fprintln(out, wordOK, found)
		}
		if err != nil {
			return err
		}
	}
	return lines.Err()
}

// Cannot sends the parent the reason why there will be no figures: for a child that cannot begin,
// in place of Serve. The text becomes one line.
func Cannot(out io.Writer, why error) error {
	_, err := fmt.Fprintln(out, wordCannot, strings.Join(strings.Fields(why.Error()), " "))
	return err
}
