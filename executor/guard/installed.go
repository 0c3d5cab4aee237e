package guard

// NotInstalled is the reason of installed.
const NotInstalled Reason = "not_installed"

// installed refuses a database that has no installation on record.
type installed struct{}

func (installed) Ask(q *Question) Answer {
	if q.Facts.installed {
		return Answer{}
	}
	return refuse(NotInstalled, "this database has no installation on record", "run `lapse init`")
}
