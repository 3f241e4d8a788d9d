package report

import (
	"encoding/json"
	"io"
	"os"
)

// Row is one line of a suite's table. The fields up to Met are in the JSON of all suites; a
// pointer is nil, and null there, where there is no such number.
type Row struct {
	Figure   string   `json:"figure"`
	Unit     string   `json:"unit"`
	Baseline *float64 `json:"baseline"`
	Ours     *float64 `json:"ours"`
	Ratio    *float64 `json:"ratio"` // the median of the ratios within each round
	Goal     string   `json:"goal"`  // a sentence
	Met      bool     `json:"met"`

	// Difference is ours minus the baseline, the median of the differences within each round.
	Difference *float64 `json:"difference,omitempty"`
	// Spread is the range of the rounds' values.
	Spread *Spread `json:"spread,omitempty"`
	// Note describes the measurement, where it was not fixed in advance.
	Note string `json:"note,omitempty"`
	// Why is the reason why there are no figures.
	Why string `json:"why,omitempty"`

	of Of
	// reported means that the row has no goal.
	reported bool
}

// Spread holds the lowest and highest value of any round for each number of a row.
type Spread struct {
	Baseline   *Span `json:"baseline,omitempty"`
	Ours       *Span `json:"ours,omitempty"`
	Ratio      *Span `json:"ratio,omitempty"`
	Difference *Span `json:"difference,omitempty"`
}

// Span is the lowest and the highest value.
type Span [2]float64

// JSON writes rows as an array, a suite's machine-readable result.
func JSON(w io.Writer, rows []Row) error {
	if rows == nil {
		rows = []Row{} // an empty array, not null
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(rows)
}

// JSONFile writes the JSON to a file, which it creates or replaces.
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
