package layout

import (
	"errors"
	"fmt"
	"testing"
)

// TestSlots: a pointer that stays keeps its slot, a new one gets the smallest that is free, and the stored form has
// both.
func TestSlots(t *testing.T) {
	c := Config{}
	for i, step := range []struct {
		pointers []string
		want     string
	}{
		{[]string{"/a", "/b", "/c"}, "[{/a 0} {/b 1} {/c 2}]"},
		{[]string{"/c", "/a"}, "[{/c 2} {/a 0}]"},
		{[]string{"/d/<é>~0", "/c", "/e"}, "[{/d/<é>~0 0} {/c 2} {/e 1}]"},
		{nil, "[]"},
		{[]string{"/1", "/2", "/3", "/4", "/5", "/6", "/7", "/8"},
			"[{/1 0} {/2 1} {/3 2} {/4 3} {/5 4} {/6 5} {/7 6} {/8 7}]"},
		{[]string{"/9", "/8", "/7", "/6", "/5", "/4", "/3", "/2"},
			"[{/9 0} {/8 7} {/7 6} {/6 5} {/5 4} {/4 3} {/3 2} {/2 1}]"},
	} {
		c = c.WithIndexes(step.pointers)
		if got := fmt.Sprint(c.Indexes); got != step.want {
			t.Errorf("%d: the slots are %s, want %s", i, got, step.want)
		}
		again, err := DecodeConfig(c.Encode())
		if err != nil || fmt.Sprint(again.Indexes) != fmt.Sprint(c.Indexes) {
			t.Errorf("%d: %s is read as %v, %v", i, c.Encode(), again.Indexes, err)
		}
		if got := fmt.Sprint(again.Wire().Indexes); got != fmt.Sprint(step.pointers) {
			t.Errorf("%d: a client sees %s", i, got)
		}
	}
	if got, want := (Config{}).WithIndexes([]string{"/customer"}).Encode(),
		`{"epochs":[],"indexes":[["/customer",0]]}`; got != want {
		t.Errorf("it is stored as %s, want %s", got, want)
	}
	for _, bad := range []string{`[["/a"]]`, `[["/a","0"]]`, `[["/a",8]]`, `[["/a",-1]]`, `[["/a",0.5]]`, `[["",0]]`,
		`[["/a",0],["/b",0]]`, `[["/a",0],["/a",1]]`} {
		if c, err := DecodeConfig(`{"epochs":[],"indexes":` + bad + `}`); err == nil {
			t.Errorf("indexes %s are read as %v", bad, c.Indexes)
		}
	}
}

// TestMaking: what is being made is read as it was written, and nothing else is.
func TestMaking(t *testing.T) {
	for _, m := range []Making{{Slots: []int{0}, Index: ByInherit}, {Slots: []int{7, 2}, Index: ByOwn, Score: NeverScore,
		ID: "é\x00", Made: 1 << 40}} {
		if again, err := DecodeMaking(m.Encode()); err != nil || fmt.Sprint(again) != fmt.Sprint(m) {
			t.Errorf("%s is read as %v, %v", m.Encode(), again, err)
		}
	}
	if m, err := DecodeMaking(""); err != nil || len(m.Slots) > 0 {
		t.Errorf("nothing is read as %v, %v", m, err)
	}
	for _, bad := range []string{"x", "{}", `{"slots":[0]}`, `{"slots":[8],"index":1}`, `{"slots":[-1],"index":1}`,
		`{"slots":[],"index":1}`, `{"slots":[0],"index":3}`} {
		if m, err := DecodeMaking(bad); !errors.Is(err, ErrForeign) {
			t.Errorf("%s is read as %v, %v", bad, m, err)
		}
	}
}
