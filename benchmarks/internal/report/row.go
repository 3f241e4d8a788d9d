package report

import (
	"encoding/json"
	"io"
	"os"
)

// Row is one line of a suite's table. Its fields up to Met are those of every suite's
// JSON; a pointer is nil, and null there, where there is no such number.
type Row struct {
	Figure   string   `json:"figure"`
	Unit     string   `json:"unit"`
	Baseline *float64 `json:"baseline"`
	Ours     *float64 `json:"ours"`
	Ratio    *float64 `json:"ratio"` // the median of those within each round
	Goal     string   `json:"goal"`  // a sentence
	Met      bool     `json:"met"`

	// Difference is ours less the baseline, the median of those within each round.
	Difference *float64 `json:"difference,omitempty"`
	// Spread is between what the rounds found.
	Spread *Spread `json:"spread,omitempty"`
	// Note is how it was measured, where that was not decided beforehand.
	Note string `json:"note,omitempty"`
	// Why is why there are no figures.
	Why string `json:"why,omitempty"`

	of Of
	// reported says that the row has no goal.
	reported bool
}

// Spread is the lowest and highest value of any round of each number of a row.
type Spread struct {
	Baseline   *Span `json:"baseline,omitempty"`
	Ours       *Span `json:"ours,omitempty"`
	Ratio      *Span `json:"ratio,omitempty"`
	Difference *Span `json:"difference,omitempty"`
}

// Span is the lowest and the highest.
type Span [2]float64

// JSON writes rows as an array, a suite's machine-readable result.
func JSON(w io.Writer, rows []Row) error {
	if rows == nil {
		rows = []Row{} // not null
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(rows)
}

// JSONFile is JSON into a file, which is made or replaced.
func JSONFile(name string, rows []Row) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	return JSON(f, rows)
}
