// Applies the chosen theme before anything is drawn.
const chosen = localStorage.getItem("wallaroo-theme");
if (chosen) document.documentElement.dataset.theme = chosen;
