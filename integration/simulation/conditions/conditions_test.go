package conditions

import (
	"slices"
	"strings"
	"testing"
)

// TestAt: the values of some bodies, of which some are not indexed.
func TestAt(t *testing.T) {
	long := strings.Repeat("x", 256)
	for body, want := range map[string]int{ // 0: nothing there; -1: left out
		`{}`: 0, `{"a":null}`: 1, `{"a":[1,1.0,2]}`: 2, `{"a":[]}`: 0, `{"a":{}}`: -1, `{"a":[{}]}`: -1,
		`{"a":1e400}`:          -1,
		`{"a":"` + long + `"}`: -1, `{"a":["` + long + `"]}`: -1, `{"a":"` + long[1:] + `"}`: 1, `{"a":1,"a":[2,3]}`: 2,
		`{"a":[` + strings.TrimSuffix(strings.Repeat("1,", 33), ",") + `]}`: -1, `{"a":[-0,0]}`: 1,
	} {
		got := At([]byte(body), "/a")
		if left := slices.Equal(got, []Value{LeftOut}); left != (want < 0) || !left && len(got) != want {
			t.Errorf("%.60s has %q, want %d values", body, got, want)
		}
	}
	if got := At([]byte(`{"a/b":{"~":[5,{"c":true}]}}`), "/a~1b/~0/1/c"); len(got) != 1 {
		t.Errorf("the value in an array is %q", got)
	}
}

// TestOrder: values are ordered by type, numbers by size and texts by their bytes.
func TestOrder(t *testing.T) {
	var all []Value
	for _, v := range []string{`null`, `false`, `true`, `-1e300`, `-2`, `-1.5`, `0`, `1e-300`, `1`, `10`, `""`,
		`"\u0000"`, `"\u0001"`, `"\u0002"`, `"a"`, `"aa"`, `"b"`} {
		all = append(all, At([]byte(`{"a":`+v+`}`), "/a")...)
	}
	if !slices.IsSorted(all) || len(slices.Compact(slices.Clone(all))) != len(all) {
		t.Errorf("not in order: %q", all)
	}
}

// TestHold: conditions hold for the documents that they are to hold for.
func TestHold(t *testing.T) {
	const body = `{"n":5,"tag":"ab","list":[1,9,"x"],"o":{"k":null},"long":{}}`
	for where, want := range map[string]bool{
		`{"/n":5}`: true, `{"/n":5.0}`: true, `{"/n":"5"}`: false, `{"/n":{"gt":4,"lte":5}}`: true,
		`{"/n":{"gt":5}}`:         false,
		`{"/tag":{"prefix":"a"}}`: true, `{"/tag":{"prefix":"ab"}}`: true, `{"/tag":{"prefix":"abc"}}`: false,
		`{"/tag":{"lt":9}}`:         false,
		`{"/list":{"gt":1,"lt":9}}`: false, `{"/list":{"gte":9}}`: true, `{"/list":{"in":["y","x"]}}`: true,
		`{"/o/k":null}`: true,
		`{"/o":null}`:   false, `{"/long":{"gte":""}}`: false, `{"/n":5,"/tag":"b"}`: false, `{"/n":{"eq":5}}`: true,
		`{"/none":null}`: false, `{}`: true,
	} {
		w, err := ParseWhere(where)
		if err != nil || w.Hold([]byte(body)) != want {
			t.Errorf("%s holds: %t, %v", where, !want, err)
		}
	}
}
