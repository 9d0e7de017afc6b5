package fold

// valid returns what json.Valid returns, in about a fifth of its time: lapse validates every
// document that a client writes. A text with more levels of objects and arrays than levels is
// not valid: it is tooDeep, unless another fault comes first.
func valid(b []byte, levels int) (ok, tooDeep bool) {
	i, ok := scanValue(b, skipSpace(b, 0), levels)
	return ok && skipSpace(b, i) == len(b), i == deeper
}

// deeper is the index that a scan function returns for a value with too many levels.
const deeper = -1

// scanValue returns the index after the value that begins at i, and whether it is valid.
// So do the other scan functions, each for its kind of value. The value may have as many levels
// of objects and arrays as there is room.
func scanValue(b []byte, i, room int) (int, bool) {
	if i >= len(b) {
		return i, false
	}
	switch c := b[i]; c {
	case '"':
		return scanString(b, i)
	case '{', '[':
		return scanNested(b, i, room-1)
	case 't':
		return scanWord(b, i, "true")
	case 'f':
		return scanWord(b, i, "false")
	case 'n':
		return scanWord(b, i, "null")
	default:
		return scanNumber(b, i)
	}
}

// scanNested scans an object or an array.
func scanNested(b []byte, i, room int) (int, bool) {
	if room < 0 {
		return deeper, false
	}
	object, end := b[i] == '{', b[i]+2 // in ASCII, } is { + 2, and ] is [ + 2
	if i = skipSpace(b, i+1); i < len(b) && b[i] == end {
		return i + 1, true
	}
	for ok := true; ; i = skipSpace(b, i+1) {
		if object {
			if i >= len(b) || b[i] != '"' {
				return i, false
			}
			if i, ok = scanString(b, i); !ok {
				return i, false
			}
			if i = skipSpace(b, i); i >= len(b) || b[i] != ':' {
				return i, false
			}
			i = skipSpace(b, i+1)
		}
		if i, ok = scanValue(b, i, room); !ok {
			return i, false
		}
		if i = skipSpace(b, i); i >= len(b) {
			return i, false
		}
		if b[i] == end {
			return i + 1, true
		}
		if b[i] != ',' {
			return i, false
		}
	}
}

func scanString(b []byte, i int) (int, bool) {
	for i++; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i + 1, true
		case c < ' ':
			return i, false
		case c == '\\':
			if i++; i >= len(b) {
				return i, false
			}
			switch b[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				for range 4 {
					if i++; i >= len(b) || !isHex(b[i]) {
						return i, false
					}
				}
			default:
				return i, false
			}
		}
	}
	return i, false
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func scanWord(b []byte, i int, word string) (int, bool) {
	if len(b)-i < len(word) || string(b[i:i+len(word)]) != word {
		return i, false
	}
	return i + len(word), true
}

func scanNumber(b []byte, i int) (int, bool) {
	if i < len(b) && b[i] == '-' {
		i++
	}
	switch {
	case i < len(b) && b[i] == '0':
		i++
	default:
		var ok bool
		if i, ok = scanDigits(b, i); !ok {
			return i, false
		}
	}
	ok := true
	if i < len(b) && b[i] == '.' {
		if i, ok = scanDigits(b, i+1); !ok {
			return i, false
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		i, ok = scanDigits(b, i)
	}
	return i, ok
}

// scanDigits scans at least one digit.
func scanDigits(b []byte, i int) (int, bool) {
	from := i
	for i < len(b) && '0' <= b[i] && b[i] <= '9' {
		i++
	}
	return i, i > from
}
