package schemas

// ReadMigrations is for tests of folders that are not ours.
var ReadMigrations = readMigrations

// FirstVersion is the oldest version that is upgraded.
const FirstVersion = firstVersion
