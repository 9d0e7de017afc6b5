package table

import (
	"strings"
	"testing"
)

// A line has the medians of its rounds. Its goal is for the figure or for the ratio.
func TestTable(t *testing.T) {
	atLeast := Goal{Must: 0.7, Aim: 1.5, Ratio: true}
	atMost := Goal{Must: 20, Aim: 5, AtMost: true}
	tab := New(t.Context(), 1, 3, 256)
	for _, f := range [][2]float64{{100, 100}, {60, 100}, {90, 100}} {
		tab.Add("r", "a rate", []Figure{HigherBetter(Figure{What: "x", Unit: "/s", Lapse: f[0], Against: "other", Other: f[1], Goal: atLeast})})
	}
	for _, ms := range []float64{30, 4, 6} {
		tab.Add("t", "a time", []Figure{LowerBetter(Figure{What: "y", Unit: "ms", Lapse: ms, Against: "other", Other: 60, Goal: atMost})})
	}
	tab.Add("n", "nothing", []Figure{LowerBetter(Figure{What: "z", Unit: "ms", Against: "other", Other: 60})})
	tab.Finish(nil, []string{"something"})
	rate, late, none := tab.Lines[0], tab.Lines[1], tab.Lines[2]
	if rate.Lapse != 90 || rate.Ratio != 0.9 || rate.Reached != "must" {
		t.Errorf("%+v", rate)
	}
	if late.Lapse != 6 || late.Ratio != 10 || late.Reached != "must" {
		t.Errorf("%+v", late)
	}
	if none.Ratio != 0 || none.Reached != "" {
		t.Errorf("%+v", none)
	}
	var text, machine strings.Builder
	if err := tab.Write(&text); err != nil || !strings.Contains(text.String(), "FAULT: something") {
		t.Errorf("%v: %s", err, &text)
	}
	if err := tab.WriteJSON(&machine); err != nil || !strings.Contains(machine.String(), `"ratioRounds"`) {
		t.Errorf("%v: %s", err, &machine)
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.123: "0.12", 12.34: "12.3", 123.4: "123", 1234: "1,234", 1234567: "1,234,567"} {
		if got := Number(v); got != want {
			t.Errorf("%v is written %s, want %s", v, got, want)
		}
	}
}
